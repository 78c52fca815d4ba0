# GPT pretraining tools. `make help` lists the targets.
#
# Reading order: variables, what is built from what (by wildcard: a new file
# needs no line here), rules, tests, installation. Everything built goes to
# $(BUILD). What the machine offers is probed once into $(BUILD)/config.mk; as
# that file is included, make starts over by itself after it was made.

VERSION = 0.1.0
PREFIX = /usr/local
BINDIR = $(PREFIX)/bin
MANDIR = $(PREFIX)/share/man
DATADIR = $(PREFIX)/share/gpt
BUILD = build
CFLAGS = -O2 -g
ifeq ($(origin CC),default)
CC = gcc
endif

# Optional libraries: auto, 0 (off) or 1 (must be there).
DNNL = auto
LZMA = auto

help_only := $(filter-out help clean distclean format,$(or $(MAKECMDGOALS),all))
ifneq ($(help_only),)
include $(BUILD)/config.mk
endif
-include config.mk

WARN = -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes \
       -Wmissing-prototypes -Wwrite-strings -Wpointer-arith -Wvla -Wformat=2 \
       -Wcast-qual -Wundef -Wdouble-promotion
HARDEN = -fstack-protector-strong -fPIE -D_FORTIFY_SOURCE=2
# IEEE as written: contraction would change Megatron's blend order and the
# reproducibility of every sum between machines.
MATHS = -ffp-contract=off -fno-math-errno -fno-trapping-math
ALL_CPPFLAGS = -D_GNU_SOURCE -DGPT_VERSION='"$(VERSION)"' \
               -DGPT_DATADIR='"$(DATADIR)"' \
               -Icommon -Ikernels -I. $(FEATURES) $(CPPFLAGS)
ALL_CFLAGS = -std=c11 -fopenmp $(WARN) $(HARDEN) $(MATHS) $(CFLAGS) $(SANITIZE)
ALL_LDFLAGS = -fopenmp -pie -Wl,-z,relro,-z,now $(LDFLAGS) $(SANITIZE)
ALL_LIBS = $(FEATURE_LIBS) -lcjson -lpthread -lm $(LIBS)

programs := $(patsubst cmd/%.c,%,$(wildcard cmd/gpt-*.c))
lib_src := $(wildcard common/*/*.c kernels/*.c kernels/cpu/*.c)
isa_src := $(wildcard kernels/cpu/isa/*.c)
unit_src := $(wildcard tests/unit/*.c)
bench_src := $(wildcard tests/bench/*.c)
parity_src := $(wildcard tests/parity/*.c)

lib_obj := $(lib_src:%.c=$(BUILD)/%.o)
isas = base $(ISAS)
isa_obj := $(foreach i,base $(ISAS),$(isa_src:%.c=$(BUILD)/%.$(i).o))
lib := $(BUILD)/libgpt.a
bins := $(programs:%=$(BUILD)/%)
unit_bins := $(unit_src:tests/unit/%.c=$(BUILD)/tests/unit/%.t)
bench_bins := $(bench_src:tests/bench/%.c=$(BUILD)/tests/bench/%)
parity_bins := $(parity_src:tests/parity/%.c=$(BUILD)/tests/parity/%)

.PHONY: all lib units
all: $(bins)
lib: $(lib)
units: $(unit_bins)

$(BUILD)/config.mk: share/build/probe.sh share/build/deps.sh
	@mkdir -p $(@D)
	@if [ -n "$(filter demo deps check check-all,$(MAKECMDGOALS))" ]; then \
	    sh share/build/deps.sh; fi
	@CC='$(CC)' DNNL='$(DNNL)' LZMA='$(LZMA)' sh share/build/probe.sh > $@.tmp
	@mv $@.tmp $@

# Kernels are compiled once per instruction set, chosen at run time.
isa_flags_base =
isa_flags_avx2 = -mavx2 -mfma -mf16c
isa_flags_avx512 = -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
define isa_rule
$(BUILD)/kernels/cpu/isa/%.$(1).o: kernels/cpu/isa/%.c
	@mkdir -p $$(@D)
	$(CC) $(ALL_CPPFLAGS) -DGPT_ISA=$(1) $(ALL_CFLAGS) -O3 $(isa_flags_$(1)) \
	    -MMD -MP -c -o $$@ $$<
endef
$(foreach i,$(isas),$(eval $(call isa_rule,$(i))))

$(BUILD)/kernels/%.o: kernels/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -O3 -MMD -MP -c -o $@ $<

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(lib): $(lib_obj) $(isa_obj)
	@rm -f $@
	$(AR) rcs $@ $^

$(bins): $(BUILD)/%: $(BUILD)/cmd/%.o $(lib)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(ALL_LIBS)

$(unit_bins): $(BUILD)/tests/unit/%.t: $(BUILD)/tests/unit/%.o $(lib)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(ALL_LIBS)

$(bench_bins): $(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o $(lib)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(ALL_LIBS)

$(parity_bins): $(BUILD)/tests/parity/%: $(BUILD)/tests/parity/%.o $(lib)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(ALL_LIBS)

.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

.PHONY: check clean
check: $(bins) $(unit_bins) $(parity_bins)
	prove -j2 $(sort $(unit_bins)) $(sort $(wildcard tests/cli/*.sh))

clean:
	rm -rf $(BUILD)
