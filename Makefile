# Kvasir's build. `make help` lists the targets.
#
#   VARIANT=release|asan|tsan|fuzz   what to build (each has its own folder, build/<variant>); arm: check-kernel for AArch64
#   CC=clang                         another compiler (its own folder too: build/<variant>-clang)
#   WERROR=1                         warnings are errors (the tests build that way)
#   V=1                              show the commands
#   PREFIX=/usr/local DESTDIR=       where install puts things

VERSION := 0.1.0
SOVERSION := 0.1

VARIANT ?= release
WERROR ?= 0
PREFIX ?= /usr/local
T ?= base
E2E ?= tests/e2e
CHECK ?=
FUZZ_SECONDS ?= 60
TEST_FUZZ_SECONDS ?= 5
MODEL ?= smollm2-135m-instruct
MODELS ?= smollm2-135m-instruct gemma-3-270m
QUESTION ?= What is a key-value cache, in one sentence?

ifeq ($(origin CC),default)
CC := gcc
endif
OBJCOPY ?= objcopy
Q := $(if $(V),,@)

# ---- Variants: optimization and instrumentation; CFLAGS from outside replaces the optimization only.
OPT_release := -O3 -g
OPT_asan := -O1 -g -fno-omit-frame-pointer
OPT_tsan := -O1 -g -fno-omit-frame-pointer
OPT_fuzz := -O1 -g -fno-omit-frame-pointer
OPT_arm := -O3 -g
SANITIZE_asan := -fsanitize=address,undefined -fno-sanitize-recover=all
SANITIZE_tsan := -fsanitize=thread
SANITIZE_fuzz := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
ifeq ($(OPT_$(VARIANT)),)
$(error VARIANT=$(VARIANT) is not known; choose release, asan, tsan, fuzz or arm)
endif

SUFFIX := $(addprefix -,$(filter-out gcc cc,$(notdir $(firstword $(CC)))))
BUILD := build/$(VARIANT)$(SUFFIX)
ifeq ($(VARIANT),fuzz)
override CC := clang
BUILD := build/fuzz
endif
ifeq ($(VARIANT),arm)
override CC := aarch64-linux-gnu-gcc
BUILD := build/arm
endif
export ASAN_OPTIONS ?= allocator_may_return_null=1:detect_stack_use_after_return=1
export TSAN_OPTIONS ?= allocator_may_return_null=1
export UBSAN_OPTIONS ?= print_stacktrace=1

# ---- Flags and libraries. The library needs PCRE2 (tokenizer), libcrypto (SHA-256), xxHash (checksums); the commands need the rest.
LIB_PACKAGES := libpcre2-8 libcrypto libxxhash
CLI_PACKAGES := jansson libcurl libedit libmicrohttpd zlib
CFLAGS ?= $(OPT_$(VARIANT))
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes $(if $(filter 1,$(WERROR)),-Werror)
ifneq ($(SANITIZE_$(VARIANT)),)
ifneq ($(findstring gcc,$(CC)),)
WARNINGS += -Wno-maybe-uninitialized # the instrumentation hides from gcc what it needs to know
endif
endif
KV_CPPFLAGS := -D_GNU_SOURCE -DKVASIR_VERSION='"$(VERSION)"' -Isrc -Iinclude \
	$(if $(filter arm,$(VARIANT)),,$(shell pkg-config --cflags $(LIB_PACKAGES) $(CLI_PACKAGES) 2>/dev/null))
KV_CFLAGS := -std=c11 $(WARNINGS) -fPIC -fvisibility=hidden -ffp-contract=off $(SANITIZE_$(VARIANT))
COMPILE = $(CC) $(KV_CPPFLAGS) $(CPPFLAGS) $(KV_CFLAGS) $(CFLAGS)
LINK = $(CC) $(KV_CFLAGS) $(CFLAGS) $(LDFLAGS)
LIB_LIBS := $(shell pkg-config --libs $(LIB_PACKAGES) 2>/dev/null) -lm -lpthread
CLI_LIBS := $(shell pkg-config --libs $(CLI_PACKAGES) 2>/dev/null)
AVX2 := $(if $(findstring x86_64,$(shell $(CC) -dumpmachine 2>/dev/null)),-mavx2 -mfma -mf16c)
AVX512 := $(if $(AVX2),$(AVX2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni)
DOTPROD := $(if $(findstring aarch64,$(shell $(CC) -dumpmachine 2>/dev/null)),-march=armv8.2-a+dotprod)
FOR_FILE = $(if $(filter %_avx2.c,$(1)),$(AVX2))$(if $(filter %_avx512.c,$(1)),$(AVX512))$(if $(filter %_dotprod.c,$(1)),$(DOTPROD))

# ---- Files. Everything in src/ but src/cli, src/serve, src/bench and src/fetch is the library; new files need no edit here.
SOURCES := $(sort $(wildcard src/*/*.c src/*/*/*.c))
PROGRAM := src/cli/% src/serve/% src/bench/% src/fetch/%
LIB_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(PROGRAM),$(SOURCES)))
CLI_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter $(PROGRAM),$(SOURCES)))
OBJECTS := $(LIB_OBJECTS) $(CLI_OBJECTS)
UNIT_SOURCES := $(sort $(wildcard tests/unit/test_*.c))
UNIT_SUPPORT := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(UNIT_SOURCES),$(wildcard tests/unit/*.c)))
UNIT_PROGRAMS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(UNIT_SOURCES)) $(BUILD)/tests/check-kernel
BENCH_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard bench/*.c)))
FUZZ_SOURCES := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_PROGRAMS := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/%,$(FUZZ_SOURCES))
# check-kernel is linked with kernels and base alone, so that it can be built for other machines, without any library.
CHECK_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(sort $(wildcard tests/check/*.c)) \
	$(filter-out src/base/hash.c,$(filter src/base/%.c src/kernel/%.c,$(SOURCES))))
# For AArch64 it runs emulated, on the processors named here: one with dot products, one without.
ARM_PROGRAMS := $(addprefix build/arm/tests/check-kernel-,max cortex-a53)
# Every unit test is in one of these lists (e2e test_build compares): over real models, too slow for sanitizers; with several threads,
# under the address and the thread sanitizer; the others, under the address sanitizer.
MODEL_TESTS := identity long_context tokenizer_models
THREAD_TESTS := api attention_bits attention_cascade base_mem base_threads engine forward model phases priority \
	product schedule serve serve_limits soak tokenizer workers
PLAIN_TESTS := arch attention attention_kinds base base_file base_half bench_serve bench_sweep bench_work cache \
	cache_random cache_tails candidates chat_prompt dequant dtype evict forward_hooks gguf gguf_files layout locale \
	model_stamp options pace pins pool random request rope sampler sampler_draws seed session session_random sim stop template tokenizer_bad \
	tokenizer_split tokenizer_window tree tree_random tree_tails tree_windows usage vector
SMALL_PROGRAMS := $(patsubst %,$(BUILD)/tests/test_%,$(THREAD_TESTS) $(PLAIN_TESTS)) $(BUILD)/tests/check-kernel
THREAD_PROGRAMS := $(THREAD_TESTS:%=$(BUILD)/tests/test_%)
TEST_ARCHIVE := $(BUILD)/libeverything.a
SHARED := libkvasir.so.$(VERSION)
LIBRARIES := $(BUILD)/libkvasir.a $(BUILD)/$(SHARED)

RUN = .venv/bin/python tests/run.py
in_variant = $(patsubst $(BUILD)/%,build/$(1)$(SUFFIX)/%,$(2))
PARALLEL = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
SUBMAKE = $(MAKE) --no-print-directory $(PARALLEL)

.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:
.PHONY: all help unit test test-unit test-e2e test-full asan tsan fuzz check-kernel check-arm bench demo lint format install uninstall clean \
	objects unit-programs small-programs thread-programs fuzz-programs arm-programs bench-programs models FORCE

all: kvasir $(LIBRARIES) ## the program ./kvasir and the libraries (the default)

# ---- Compile and link.
$(BUILD)/obj/%.o: %.c $(BUILD)/flags | build/.dependencies
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC    $< ($(notdir $(BUILD)))")
	$(Q)$(COMPILE) $(call FOR_FILE,$<) -MMD -MP -c $< -o $@

# Objects are made anew when a flag changes, what is linked of them when a source comes or goes. What every make writes is moved into
# place, since two may run at once.
$(BUILD)/flags: REMEMBER = $(COMPILE) $(AVX512)$(DOTPROD)
$(BUILD)/sources: REMEMBER = $(SOURCES)
$(BUILD)/flags $(BUILD)/sources: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(REMEMBER))' >$@.$$$$; if cmp -s $@.$$$$ $@; then rm $@.$$$$; else mv $@.$$$$ $@; fi

# Names every missing package before anything is compiled.
build/.dependencies: scripts/setup scripts/packages
	@scripts/setup --check build
	@mkdir -p $(@D) && touch $@

$(BUILD)/kvasir: $(OBJECTS) $(BUILD)/sources
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(LINK) $(OBJECTS) $(CLI_LIBS) $(LIB_LIBS) -o $@

kvasir: $(BUILD)/kvasir FORCE
	@cmp -s $< $@ || cp -f $< $@

# One relocatable object in which only the public symbols are left to see.
$(BUILD)/libkvasir.a: $(LIB_OBJECTS) $(BUILD)/sources
	@$(if $(V),,echo "  AR    $@")
	$(Q)$(CC) -r -nostdlib $(LIB_OBJECTS) -o $(BUILD)/libkvasir.o
	$(Q)$(OBJCOPY) --localize-hidden $(BUILD)/libkvasir.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(BUILD)/libkvasir.o

$(BUILD)/$(SHARED): $(LIB_OBJECTS) $(BUILD)/sources
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(LINK) -shared -Wl,-soname,libkvasir.so.$(SOVERSION) -Wl,-z,defs $(LIB_OBJECTS) $(LIB_LIBS) -o $@

# ---- Tests link with all objects but main's.
$(TEST_ARCHIVE): $(filter-out %/cli/main.o,$(OBJECTS)) $(BUILD)/sources
	$(Q)rm -f $@ && $(AR) rcsT $@ $(filter %.o,$^)

$(BUILD)/tests/test_%: $(BUILD)/obj/tests/unit/test_%.o $(UNIT_SUPPORT) $(TEST_ARCHIVE)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(LINK) $^ -lcmocka $(CLI_LIBS) $(LIB_LIBS) -o $@

$(BUILD)/tests/check-kernel: $(CHECK_OBJECTS)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(LINK) $(if $(filter arm,$(VARIANT)),-static) $^ -lm -lpthread -o $@

build/arm/tests/check-kernel-%: build/arm/tests/check-kernel
	$(Q)printf '#!/bin/sh\nexec qemu-aarch64 -cpu %s "$${0%%/*}/check-kernel" "$$@"\n' $* >$@
	$(Q)chmod +x $@

$(BUILD)/tests/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(TEST_ARCHIVE)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(LINK) -fsanitize=fuzzer $^ $(CLI_LIBS) $(LIB_LIBS) -o $@

$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(TEST_ARCHIVE)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(LINK) $^ $(CLI_LIBS) $(LIB_LIBS) -o $@

objects: $(OBJECTS)
unit-programs: $(UNIT_PROGRAMS)
small-programs: $(SMALL_PROGRAMS)
thread-programs: $(THREAD_PROGRAMS)
fuzz-programs: $(FUZZ_PROGRAMS)
arm-programs: $(ARM_PROGRAMS)
bench-programs: $(BENCH_PROGRAMS)

unit: $(BUILD)/tests/test_$(T) ## build and run one unit test: make unit T=gguf [VARIANT=asan]
	$<

check-kernel: $(BUILD)/tests/check-kernel ## every kernel of this processor against its reference; CHECK=--bench measures, CHECK=--help
	$< $(CHECK)

check-arm: ## the same for AArch64, cross-built and emulated
	@scripts/setup arm
	@$(SUBMAKE) VARIANT=arm arm-programs
	$(Q)set -e; for program in $(ARM_PROGRAMS); do echo "$$program"; $$program $(CHECK); done

# Everything that a test run builds takes warnings for errors, and so does what the tests themselves build.
test test-unit test-e2e test-full asan tsan fuzz check-arm: export WERROR := 1
test-full: export TEST_FULL := 1

# What tests need: packages, the program, and the models that it fetches.
define ready
@scripts/setup test
@$(SUBMAKE) all
@$(SUBMAKE) models
endef

test: ## everything that must pass: units, sanitizers, fuzzers, kernels for AArch64, end to end; sets up what it needs
	$(ready)
	@$(SUBMAKE) unit-programs bench-programs
	@$(SUBMAKE) VARIANT=asan small-programs
	@$(SUBMAKE) VARIANT=tsan thread-programs
	@$(SUBMAKE) VARIANT=fuzz fuzz-programs
	@$(SUBMAKE) VARIANT=arm arm-programs
	@$(RUN) --unit $(ARM_PROGRAMS) $(UNIT_PROGRAMS) $(call in_variant,asan,$(SMALL_PROGRAMS)) $(call in_variant,tsan,$(THREAD_PROGRAMS)) \
		--fuzz $(patsubst tests/fuzz/%.c,build/fuzz/tests/%,$(FUZZ_SOURCES)) --fuzz-seconds $(TEST_FUZZ_SECONDS) --e2e tests/e2e

test-full: TEST_FUZZ_SECONDS := 120
test-full: test ## the same with the tests that take long

test-unit: ## the unit tests alone, in the release build
	$(ready)
	@$(SUBMAKE) unit-programs
	@$(RUN) --unit $(UNIT_PROGRAMS)

test-e2e: ## the end-to-end tests alone; E2E=tests/e2e/test_x.py chooses one file
	$(ready)
	@$(RUN) --e2e $(E2E)

asan: ## the unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/setup test
	@$(SUBMAKE) VARIANT=asan small-programs
	@$(RUN) --unit $(call in_variant,asan,$(SMALL_PROGRAMS))

tsan: ## the unit tests that use threads under ThreadSanitizer
	@scripts/setup test
	@$(SUBMAKE) VARIANT=tsan thread-programs
	@$(RUN) --unit $(call in_variant,tsan,$(THREAD_PROGRAMS))

fuzz: ## every fuzzer for FUZZ_SECONDS (60) each; what they find is left in build/fuzz/found
	@scripts/setup test
	@$(SUBMAKE) VARIANT=fuzz fuzz-programs
	@$(RUN) --fuzz $(patsubst tests/fuzz/%.c,build/fuzz/tests/%,$(FUZZ_SOURCES)) --fuzz-seconds $(FUZZ_SECONDS)

# ---- Use.
models:
	@for model in $(MODELS); do PATH="$(CURDIR)/.venv/bin:$$PATH" ./kvasir pull $$model || exit 1; done

demo: ## set up, build, fetch a small model and ask it QUESTION
	@scripts/setup demo
	@$(SUBMAKE) all
	@$(SUBMAKE) models MODELS=$(MODEL)
	./kvasir run $(MODEL) "$(QUESTION)"

bench: all $(BENCH_PROGRAMS) ## measure this machine: the kernels one by one, then MODEL
	$(Q)set -e; for program in $(BENCH_PROGRAMS); do echo "$$program"; $$program; done
	./kvasir bench --model $(MODEL)

# ---- Care.
lint: ## clang-tidy and cppcheck over the sources
	@scripts/setup lint
	$(Q)printf '%s\n' $(SOURCES) | xargs -P $(shell nproc) -I {} \
		clang-tidy --quiet --warnings-as-errors='*' {} -- -std=c11 $(KV_CPPFLAGS) $(AVX512)
	cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr --enable=warning,performance,portability \
		--suppress=missingIncludeSystem -Isrc -Iinclude -D_GNU_SOURCE $(SOURCES)

format: ## rewrite the sources in the project's layout (.clang-format)
	@scripts/setup lint
	clang-format -i $(wildcard include/*.h src/*/*.[ch] src/*/*/*.[ch] tests/unit/*.[ch] tests/check/*.[ch] tests/fuzz/*.[ch])

# ---- Install: pairs of source and place below PREFIX; uninstall removes the same places.
SHARE := $(BUILD)/share
INSTALLED := \
	$(BUILD)/kvasir:bin/kvasir \
	include/kvasir.h:include/kvasir.h \
	$(BUILD)/libkvasir.a:lib/libkvasir.a \
	$(BUILD)/$(SHARED):lib/$(SHARED) \
	$(SHARE)/kvasir.pc:lib/pkgconfig/kvasir.pc \
	$(SHARE)/kvasir.1:share/man/man1/kvasir.1 \
	$(SHARE)/kvasir.bash:share/bash-completion/completions/kvasir \
	$(SHARE)/kvasir.zsh:share/zsh/site-functions/_kvasir \
	$(SHARE)/kvasir.fish:share/fish/vendor_completions.d/kvasir.fish
SHARED_LINKS := lib/libkvasir.so.$(SOVERSION) lib/libkvasir.so

$(SHARE)/kvasir.1: $(BUILD)/kvasir
	@mkdir -p $(@D)
	$(Q)$< help --man >$@.$$$$ && mv $@.$$$$ $@

$(SHARE)/kvasir.%: $(BUILD)/kvasir
	@mkdir -p $(@D)
	$(Q)$< completion $* >$@.$$$$ && mv $@.$$$$ $@

$(SHARE)/kvasir.pc: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'includedir=$${prefix}/include' 'libdir=$${prefix}/lib' '' \
		'Name: kvasir' 'Description: LLM inference whose KV cache is a database' 'Version: $(VERSION)' \
		'Requires.private: $(LIB_PACKAGES)' 'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lkvasir' \
		'Libs.private: -lm -lpthread' >$@.$$$$ && mv $@.$$$$ $@

install: $(BUILD)/kvasir $(LIBRARIES) $(filter $(SHARE)/%,$(subst :, ,$(INSTALLED))) ## program, libraries, header, man page, completions
	$(Q)set -e; for pair in $(INSTALLED); do \
		case $$pair in *:bin/*) mode=755 ;; *) mode=644 ;; esac; \
		install -D -m $$mode "$${pair%%:*}" "$(DESTDIR)$(PREFIX)/$${pair#*:}"; \
	done; \
	for link in $(SHARED_LINKS); do ln -sf $(SHARED) "$(DESTDIR)$(PREFIX)/$$link"; done

uninstall: ## remove what install put there
	$(Q)cd "$(DESTDIR)$(PREFIX)" && rm -f $(foreach pair,$(INSTALLED),$(lastword $(subst :, ,$(pair)))) $(SHARED_LINKS)

clean: ## remove what was built (not .venv, not the models)
	rm -rf build kvasir

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' Makefile

FORCE:

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
