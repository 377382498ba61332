/* log.h - lines for the program's operator; the library itself never prints.
 *
 * A `log_sink` is passed down where something is worth saying; NULL says nothing. The program that owns the sink
 * decides where the lines go. Threads: the sink's function must be callable from any thread.
 */
#ifndef KVASIR_BASE_LOG_H
#define KVASIR_BASE_LOG_H

typedef enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR } log_level;

typedef struct log_sink {
    void (*write)(void *user, log_level level, const char *line); /* one line, no newline */
    void *user;
    log_level least; /* quieter lines are not even formatted */
} log_sink;

void log_line(const log_sink *sink, log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
