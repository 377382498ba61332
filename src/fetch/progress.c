#include "fetch/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum { REDRAW_NS = 100 * 1000 * 1000, QUIET_NS = 250 * 1000 * 1000, BAR_MIN = 5, BAR_MAX = 30 };

const char *bytes_text(char out[BYTES_TEXT], uint64_t n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)n;
    int u = 0;
    for (; v >= 1023.95 && u < 6; u++) v /= 1024;
    snprintf(out, BYTES_TEXT, u == 0 ? "%.0f %s" : "%.1f %s", v, units[u]);
    return out;
}

static void amount_text(char out[BYTES_TEXT], const progress *p, double n)
{
    if (strcmp(p->unit, "B") == 0) bytes_text(out, (uint64_t)n);
    else snprintf(out, BYTES_TEXT, "%.0f %.10s", n, p->unit);
}

static void time_text(char out[BYTES_TEXT], double seconds)
{
    long s = (long)(seconds + 0.5);
    if (s >= 3600) snprintf(out, BYTES_TEXT, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else snprintf(out, BYTES_TEXT, "%ld:%02ld", s / 60, s % 60);
}

static int terminal_columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

void progress_begin(progress *p, const char *what, uint64_t total, const char *unit)
{
    const char *term = getenv("TERM");
    *p = (progress){.what = what, .total = total, .unit = unit, .start_ns = clock_ns()};
    p->tty = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

/* "45%  43.1 MiB of 93.8 MiB  12.3 MiB/s  0:04 left", as far as it is known. */
static void numbers_text(char *out, size_t size, const progress *p, uint64_t done, double seconds)
{
    char amount[BYTES_TEXT], total[BYTES_TEXT], rate_text[BYTES_TEXT], left[BYTES_TEXT];
    double rate = seconds > 0 && done > p->first ? (double)(done - p->first) / seconds : 0;
    amount_text(amount, p, (double)done);
    amount_text(total, p, (double)p->total);
    amount_text(rate_text, p, rate);
    int n = p->total ? snprintf(out, size, "%3.0f%%  %s of %s",
                                done < p->total ? 100.0 * (double)done / (double)p->total : 100, amount, total)
                     : snprintf(out, size, "%s", amount);
    if (rate > 0) n += snprintf(out + n, size - (size_t)n, "  %s/s", rate_text);
    if (rate == 0 || done >= p->total) return;
    time_text(left, (double)(p->total - done) / rate);
    snprintf(out + n, size - (size_t)n, "  %s left", left);
}

/* what  [########--------]  numbers: the bar takes the room that is left over. */
static void draw(const progress *p, uint64_t done, double seconds)
{
    char numbers[160], line[512];
    numbers_text(numbers, sizeof numbers, p, done, seconds);
    int columns = terminal_columns() - 1, room = columns - (int)(strlen(p->what) + strlen(numbers)) - 6;
    int width = room < BAR_MAX ? room : BAR_MAX, n = snprintf(line, sizeof line, "%.200s  ", p->what);
    if (p->total > 0 && width >= BAR_MIN) {
        int full = done < p->total ? (int)((double)done / (double)p->total * width) : width;
        line[n++] = '[';
        for (int i = 0; i < width; i++) line[n++] = i < full ? '#' : '-';
        n += snprintf(line + n, sizeof line - (size_t)n, "]  ");
    }
    n += snprintf(line + n, sizeof line - (size_t)n, "%s", numbers);
    fprintf(stderr, "\r%.*s\033[K", columns < n ? columns : n, line);
    fflush(stderr);
}

void progress_update(progress *p, uint64_t done)
{
    if (!p->tty) return;
    int64_t now = clock_ns();
    if (now - p->start_ns < QUIET_NS || (p->shown && now - p->last_ns < REDRAW_NS)) return;
    p->last_ns = now;
    p->shown = true;
    draw(p, done, (double)(now - p->start_ns) * 1e-9);
}

void progress_end(progress *p)
{
    if (p->shown) fputs("\r\033[K", stderr);
    p->shown = false;
}
