#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_line(const log_sink *sink, log_level level, const char *fmt, ...)
{
    if (!sink || level < sink->least) return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    sink->write(sink->user, level, line);
}
