#include "base/machine.h"

#include <stdio.h>
#include <sys/resource.h>

static uint64_t read_number(const char *path, const char *format)
{
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    char line[256];
    unsigned long long v = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, format, &v) == 1) break;
    fclose(f);
    return v;
}

uint64_t machine_free_bytes(void)
{
    uint64_t available = read_number("/proc/meminfo", "MemAvailable: %llu kB") * 1024;
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max", "%llu"),
             used = read_number("/sys/fs/cgroup/memory.current", "%llu");
    uint64_t cache = read_number("/sys/fs/cgroup/memory.stat", "file %llu"); /* given back when memory is asked for */
    if (limit) {
        used = used > cache ? used - cache : 0;
        uint64_t left = limit > used ? limit - used : 0;
        if (available == 0 || left < available) available = left;
    }
    return available;
}

uint64_t machine_peak_rss_bytes(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}
