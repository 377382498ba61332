CFLAGS ?= -O3 -g
KV_CFLAGS = -std=c11 -Isrc -Iinclude -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -fvisibility=hidden -ffp-contract=off -MMD -MP
