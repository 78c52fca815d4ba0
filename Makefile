# GPT pretraining tools. `make help` lists the targets.
#
# Reading order: variables, what is built from what (by wildcard: a new file
# needs no line here), rules, tests, installation. Everything built goes to
# $(BUILD). What the machine offers is probed once into $(BUILD)/config.mk; as
# that file is included, make starts over by itself after it was made.

# `make clean all` means one after the other, whatever -j says, and each of them
# sees what those before it have left.
ifneq ($(and $(filter clean distclean deps,$(MAKECMDGOALS)),$(word 2,$(MAKECMDGOALS))),)
first_goal := $(firstword $(MAKECMDGOALS))
.PHONY: $(MAKECMDGOALS)
$(first_goal):
	@set -e; for goal in $(MAKECMDGOALS); do \
	    $(MAKE) --no-print-directory $$goal; done
$(sort $(filter-out $(first_goal),$(MAKECMDGOALS))): ; @:
else

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

# Every rule is written here. Make's own would link a changed file's object to
# make the .d file, which is included below.
MAKEFLAGS += --no-builtin-rules

# As many jobs as there are processors, unless -j says otherwise. Before Make 4.4
# only the environment tells what -j said to the make that started this one.
JOBS = $(shell getconf _NPROCESSORS_ONLN)
ifeq ($(filter -j% --jobserver%,$(MAKEFLAGS) $(shell echo "$$MAKEFLAGS")),)
MAKEFLAGS += -j$(JOBS)
endif

# Optional libraries: auto, 0 (off) or 1 (must be there).
DNNL = auto
LZMA = auto
ZLIB = auto
ZSTD = auto
GLOO = auto
MICROHTTPD = auto
# GPUs: libgpt-cuda.so where nvcc is; see `make cuda`.
CUDA = auto
CUDA_ARCHS = 80 86 89 90 100 120

# Make takes names apart at spaces.
ifeq ($(strip $(BUILD)),)
$(error BUILD is empty: name a folder, or leave it out)
endif
ifneq ($(words $(BUILD)),1)
$(error BUILD='$(BUILD)' has a space: name another folder)
endif

probe_for := $(filter-out help clean distclean format check-gpu bench-gpu,$(or $(MAKECMDGOALS),all))
ifneq ($(probe_for),)
include $(BUILD)/config.mk
endif
-include config.mk

# What was probed stays as it is, so that a setting which comes later would
# change nothing.
had = $(if $(findstring HAVE_$(1)=,$(FEATURES)),yes,no)
ifneq ($(origin FEATURES),undefined)
late := $(strip $(foreach f,DNNL LZMA ZLIB ZSTD GLOO MICROHTTPD,\
    $(if $(filter 0yes 1no,$($f)$(call had,$f)),$f=$($f))) \
    $(if $(filter 1,$(CUDA)),$(if $(NVCC),,CUDA=1)))
ifneq ($(late),)
$(error $(BUILD) was made without $(late): 'make clean' first, or another BUILD)
endif
endif

WARN = -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes \
       -Wmissing-prototypes -Wwrite-strings -Wpointer-arith -Wvla -Wformat=2 \
       -Wcast-qual -Wundef -Wdouble-promotion
HARDEN = -fstack-protector-strong -fPIE -D_FORTIFY_SOURCE=2
# IEEE as written: contraction would change Megatron's blend order and the
# reproducibility of every sum between machines.
MATHS = -ffp-contract=off -fno-math-errno -fno-trapping-math
# The headers that programs share with the plugins that they open, as a number.
interface := $(addprefix kernels/,backend.h collectives.h plugin.h) \
             $(addprefix common/base/,dtype.h rng.h status.h)
GPT_INTERFACE := $(shell cat $(interface) | cksum | cut -d' ' -f1)U
ALL_CPPFLAGS = -D_GNU_SOURCE -DGPT_VERSION='"$(VERSION)"' \
               -DGPT_DATADIR='"$(DATADIR)"' \
               -DGPT_INTERFACE=$(GPT_INTERFACE) \
               -Icommon -Ikernels -I. $(FEATURES) $(CPPFLAGS) \
               $(patsubst %,-DGPT_HAVE_ISA_%=1,$(sort $(ISAS) $(pairs) $(few)))
ALL_CFLAGS = -std=c11 -fopenmp $(WARN) $(HARDEN) $(MATHS) $(CFLAGS) $(SANITIZE)
# Gloo is C++: one file behind common/parallel/gloo.h.
ALL_CXXFLAGS = -std=c++17 -Wall -Wextra -Wshadow -Wundef $(HARDEN) $(CFLAGS) \
               $(SANITIZE)
ALL_LDFLAGS = -fopenmp -pie -Wl,-z,relro,-z,now $(LDFLAGS) $(SANITIZE)
ALL_LIBS = $(FEATURE_LIBS) -lcjson -lpthread -ldl -lm $(LIBS)

programs := $(patsubst cmd/%/main.c,gpt-%,$(wildcard cmd/*/main.c))
lib_src := $(wildcard common/*/*.c common/*/*/*.c kernels/*.c kernels/cpu/*.c)
# What programs do alone: an archive of its own, so that tests reach it, too.
cmd_src := $(filter-out %/main.c,$(wildcard cmd/*/*.c))
isa_src := $(wildcard kernels/cpu/isa/*.c)
unit_src := $(wildcard tests/unit/*.c)
bench_src := $(wildcard tests/bench/*.c)
parity_src := $(wildcard tests/parity/*.c)

cmd_obj := $(cmd_src:%.c=$(BUILD)/%.o)
lib_obj := $(lib_src:%.c=$(BUILD)/%.o) $(CXX_SRC:%.cc=$(BUILD)/%.o)
# Instruction sets, by what is compiled for them. The probe finds ISAS, PAIRS and
# FEW; set empty on the command line they leave machine code out, and here what
# needs that goes, too.
# Vector loops: a copy of each kernels/cpu/isa/*.c.
isas = base $(ISAS)
# avx512vnni or nothing: what the sets beyond AVX-512 all need.
vnni = $(if $(filter avx512,$(ISAS)),$(filter avx512vnni,$(FEW)))
# Products of bf16: files of kernels/cpu/pair/.
pairs = $(if $(vnni),$(if $(filter avx512bf16,$(PAIRS)), \
            $(filter avx512bf16 $(FEW),$(PAIRS))))
# Products with weights in fewer bits: files of kernels/cpu/few/ and many/.
few = $(if $(isa_src),$(filter avx2,$(ISAS))) \
      $(if $(filter avx2,$(ISAS)),$(filter avx2vnni,$(FEW))) \
      $(if $(vnni),$(filter avx512vnni $(pairs),$(FEW)) \
                  $(filter avx512bf16,$(pairs)))
isa_obj := $(foreach i,$(isas),$(isa_src:%.c=$(BUILD)/%.$(i).o)) \
           $(pairs:%=$(BUILD)/kernels/cpu/pair/%.o) \
           $(patsubst %,$(BUILD)/kernels/cpu/few/%.o, \
               $(few) $(if $(isa_src),$(filter avx512,$(ISAS)))) \
           $(patsubst %,$(BUILD)/kernels/cpu/few/bytes/%.o, \
               $(filter avx2 avx2vnni,$(few))) \
           $(few:%=$(BUILD)/kernels/cpu/many/%.o)
lib := $(BUILD)/libgpt.a
cmd_lib := $(BUILD)/libcmd.a
libs := $(cmd_lib) $(lib)
bins := $(programs:%=$(BUILD)/%)
unit_bins := $(unit_src:tests/unit/%.c=$(BUILD)/tests/unit/%.t)
# Programs and the tests of products once more, with tile registers that are
# emulated where the processor has none: tests/cli/t59-instruction-sets.sh.
tiled_tests = decode kernels_attn kernels_bf16 kernels_isa kernels_matmul \
              kernels_pairs kernels_quant model
tiled_bins := $(tiled_tests:%=$(BUILD)/tiles/tests/unit/test_%.t) \
              $(programs:%=$(BUILD)/tiles/%)
bench_bins := $(bench_src:tests/bench/%.c=$(BUILD)/tests/bench/%)
gpu_bench_src := $(wildcard tests/gpu/*.c)
gpu_bench_bins := $(gpu_bench_src:tests/gpu/%.c=$(BUILD)/tests/gpu/%)
parity_bins := $(parity_src:tests/parity/%.c=$(BUILD)/tests/parity/%)

# Faults from outside, by LD_PRELOAD: tests/cli/t84-outputs.sh.
preload := $(BUILD)/tests/lib/preload.so

fuzz_src := $(wildcard tests/fuzz/*.c)
fuzz_bins := $(fuzz_src:tests/fuzz/%.c=$(BUILD)/tests/fuzz/%.t)
fuzzers := $(fuzz_src:tests/fuzz/%.c=$(BUILD)/%) # with libFuzzer
# Programs whose system calls and allocations can be made to fail (base/fault.h):
# the files with hooks are compiled again and linked before the library.
fault_src := $(shell grep -ls '"base/fault.h"' $(lib_src) $(cmd_src))
fault_obj := $(fault_src:%.c=$(BUILD)/faults/%.o)
fault_bins := $(programs:%=$(BUILD)/faults/%)
completions := $(foreach p,$(programs),$(BUILD)/completions/$(p).bash \
    $(BUILD)/completions/$(p).zsh $(BUILD)/completions/$(p).fish)

# The kernels of kernels/cuda, twice: for GPUs by nvcc, and emulated.
gpu := $(if $(filter-out 0,$(CUDA)),$(if $(GPU_ARCHS),$(BUILD)/libgpt-cuda.so))
emu := $(if $(HAVE_CXX),$(BUILD)/libgpt-cuda-emu.so)
emu_test := $(if $(HAVE_CXX),$(patsubst tests/emu/%.cu,$(BUILD)/tests/emu/%.t,\
            $(wildcard tests/emu/*.cu)))

.PHONY: all lib units
all: $(bins) $(gpu)          ## build the programs (the default)
lib: $(lib)                  ## build libgpt.a
units: $(unit_bins) $(emu)   ## build the unit tests

$(BUILD)/config.mk: share/build/probe.sh share/build/deps.sh
	@mkdir -p $(@D) || \
	    { echo 'name another folder, as in make BUILD=/tmp/gpt' >&2; exit 1; }
	@if [ -n "$(filter demo deps check check-all asan,$(MAKECMDGOALS))" ]; \
	then sh share/build/deps.sh; fi
	@CC='$(CC)' CXX='$(CXX)' DNNL='$(DNNL)' LZMA='$(LZMA)' \
	    ZLIB='$(ZLIB)' ZSTD='$(ZSTD)' GLOO='$(GLOO)' CUDA='$(CUDA)' \
	    MICROHTTPD='$(MICROHTTPD)' \
	    CUDA_ARCHS='$(CUDA_ARCHS)' sh share/build/probe.sh > $@.tmp
	@[ ! -f $@ ] || cmp -s $@ $@.tmp || { \
	    echo 'the machine offers something else: compiling again'; \
	    find $(@D) -name '*.o' -delete; }
	@mv $@.tmp $@

# Kernels are compiled once per instruction set, chosen at run time. They alone
# may fuse a * b + c into one instruction: half of a product's speed, and their
# sums differ between instruction sets anyway.
isa_flags_base =
isa_flags_avx2 = -mavx2 -mfma -mf16c
isa_flags_avx512 = -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
fused = -O3 -ffp-contract=fast $(FUSE)
define isa_rule
$(BUILD)/kernels/cpu/isa/%.$(1).o: kernels/cpu/isa/%.c
	@mkdir -p $$(@D)
	$(CC) $(ALL_CPPFLAGS) -DGPT_ISA=$(1) $(ALL_CFLAGS) $(fused) \
	    $(isa_flags_$(1)) -MMD -MP -c -o $$@ $$<
endef
$(foreach i,$(isas),$(eval $(call isa_rule,$(i))))

# Products of bf16, and those of few rows and of many with weights in fewer bits:
# a file an instruction set; avx2.c and bytes.c are compiled for two.
pair_flags_avx2 = $(isa_flags_avx2)
pair_flags_avx2vnni = $(isa_flags_avx2) -mavxvnni
pair_flags_avx512 = $(isa_flags_avx512)
pair_flags_avx512bf16 = $(isa_flags_avx512) -mavx512bf16
pair_flags_avx512vnni = $(isa_flags_avx512) -mavx512vnni
pair_flags_amx = $(isa_flags_avx512) -mavx512bf16 -mamx-tile -mamx-bf16
define pair_rule
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(fused) \
	    $(pair_flags_$(basename $(@F))) -MMD -MP -c -o $@ $<
endef
$(BUILD)/kernels/cpu/pair/%.o: kernels/cpu/pair/%.c
	$(pair_rule)
$(BUILD)/kernels/cpu/few/%.o: kernels/cpu/few/%.c
	$(pair_rule)
$(BUILD)/kernels/cpu/few/avx2vnni.o: kernels/cpu/few/avx2.c
	$(pair_rule)
$(BUILD)/kernels/cpu/few/bytes/%.o: kernels/cpu/few/bytes.c
	$(pair_rule)
$(BUILD)/kernels/cpu/many/avx2vnni.o: kernels/cpu/many/avx2.c
	$(pair_rule)
$(BUILD)/kernels/cpu/many/%.o: kernels/cpu/many/%.c
	$(pair_rule)

$(BUILD)/kernels/%.o: kernels/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -O3 -MMD -MP -c -o $@ $<

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Its number changes with any of the headers, included here or not.
$(BUILD)/kernels/backend.o $(BUILD)/cuda/cuda.o $(BUILD)/emu/cuda.o: $(interface)

$(BUILD)/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) $(ALL_CPPFLAGS) $(ALL_CXXFLAGS) -MMD -MP -c -o $@ $<

# Loops that are for the compiler to vectorise.
$(BUILD)/common/base/convert.o $(BUILD)/common/base/exp.o \
$(BUILD)/common/checkpoint/move_box.o \
$(BUILD)/common/checkpoint/merge_sums.o: ALL_CFLAGS += -O3
$(BUILD)/tests/lib/tiles.o: ALL_CFLAGS += -O3

# The assembler includes these files; the compiler does not see them.
$(BUILD)/cmd/report/page.o: $(wildcard share/report/*)
$(BUILD)/cmd/generate/serve_info.o: share/serve/page.html

$(lib): $(lib_obj) $(isa_obj)
	@rm -f $@
	$(AR) rcs $@ $^

$(cmd_lib): $(cmd_obj)
	@rm -f $@
	$(AR) rcs $@ $^

link = $(CC) $(ALL_LDFLAGS) -o $@ $^ $(ALL_LIBS)

$(bins): $(BUILD)/gpt-%: $(BUILD)/cmd/%/main.o $(libs) | $(BUILD)/presets
	$(link)

# Programs look for presets beside themselves, too: base/options_preset.c.
$(BUILD)/presets:
	@ln -sfn '$(CURDIR)/share/presets' $@

$(unit_bins): %.t: %.o $(libs)
	$(link)

$(bench_bins) $(gpu_bench_bins) $(parity_bins): %: %.o $(libs)
	$(link)

$(BUILD)/tiles/tests/unit/%.t: $(BUILD)/tests/unit/%.o \
    $(BUILD)/tests/lib/tiles.o $(libs)
	@mkdir -p $(@D)
	$(link)

$(BUILD)/tiles/gpt-%: $(BUILD)/cmd/%/main.o $(BUILD)/tests/lib/tiles.o $(libs)
	@mkdir -p $(@D)
	$(link)

$(fault_bins): $(BUILD)/faults/gpt-%: $(BUILD)/cmd/%/main.o $(fault_obj) $(libs)
	$(link)

$(preload): tests/lib/preload.c
	@mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -std=c11 $(WARN) -fPIC $(CFLAGS) -shared -o $@ $< -ldl

$(BUILD)/faults/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) -DGPT_FAULTS $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

include share/build/cuda.mk

# Fuzz targets replay their corpus under make check; `make fuzz` builds them
# with libFuzzer instead.
$(fuzz_bins): %.t: %.o $(BUILD)/tests/lib/replay.o $(libs)
	$(link)

$(fuzzers): $(BUILD)/%: $(BUILD)/tests/fuzz/%.o $(libs)
	$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer \
	    -Wl,--defsym=gpt_backend_open_rank=LLVMFuzzerTestOneInput \
	    -o $@ $^ $(ALL_LIBS)

$(BUILD)/completions/%.bash: $(BUILD)/%
	@mkdir -p $(@D)
	$< --complete=bash > $@
$(BUILD)/completions/%.zsh: $(BUILD)/%
	@mkdir -p $(@D)
	$< --complete=zsh > $@
$(BUILD)/completions/%.fish: $(BUILD)/%
	@mkdir -p $(@D)
	$< --complete=fish > $@

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# ---- tests ----

.PHONY: check check-programs check-all check-gpu bench-gpu cuda-report sweep matrix isas asan lint format bench bench-peers bench-layouts fuzz fuzzers demo deps
ASAN = -fsanitize=address,undefined -fno-sanitize-recover=undefined
logged = sh tests/lib/logged.sh
tests = $(sort $(unit_bins) $(fuzz_bins) $(emu_test) \
        $(wildcard tests/cli/*.sh tests/parity/*.sh))

check-programs: $(bins) $(unit_bins) $(tiled_bins) $(fuzz_bins) $(parity_bins) $(fault_bins) $(preload) $(bench_bins) $(gpu_bench_bins) $(emu) $(emu_test) ## build all that check runs

check: check-programs ## run all tests
	@rm -rf $(BUILD)/tests/logs && mkdir -p $(BUILD)/tests/logs
	BUILD='$(BUILD)' OMP_WAIT_POLICY=passive \
	    prove -j$(JOBS) -e '$(logged) run $(BUILD)/tests/logs' $(tests) || \
	    { $(logged) failures $(BUILD)/tests/logs; exit 1; }

check-all: check matrix sweep isas asan lint $(if $(gpu),cuda-report) ## check, all layouts, sanitizers, lint

sweep: $(BUILD)/tests/unit/test_cuda.t $(emu) ## emulated kernels, random shapes
	GPT_TEST_SWEEP=40 BUILD='$(BUILD)' $<

cuda-report: $(gpu)          ## registers and spills of the kernels
	@sh tests/lib/ptxas.sh $(BUILD) > $(BUILD)/cuda/report.txt || \
	    { cat $(BUILD)/cuda/report.txt; exit 1; }
	@tail -n 1 $(BUILD)/cuda/report.txt

matrix: $(bins)              ## train in every layout of up to 8 ranks
	BUILD='$(BUILD)' GPT_LAYOUTS=all sh tests/cli/t54-layouts.sh

isas: $(bins) $(unit_bins) $(tiled_bins) ## kernels and models on every instruction set
	BUILD='$(BUILD)' GPT_TEST_ISAS=all sh tests/cli/t59-instruction-sets.sh

asan:                        ## check under ASan and UBSan, in build/asan
	$(MAKE) BUILD=$(BUILD)/asan CFLAGS='-O1 -g' SANITIZE='$(ASAN)' CUDA=0 \
	    check

check-gpu:                   ## kernels, trainings, texts on a GPU: needs nvcc, cJSON
	BUILD='$(BUILD)/gpu' sh tests/gpu/check.sh

bench-gpu:                   ## kernels and training steps on a GPU against peers
	BUILD='$(BUILD)/gpu' sh tests/gpu/bench.sh

lint:                        ## order, names, dialect, sizes; cppcheck, mandoc, shellcheck
	sh tests/lib/lint.sh

format:                      ## reformat changed lines of C (git clang-format)
	git clang-format --force --extensions c,h HEAD

bench: $(bins) $(bench_bins) ## measure: figure, floor, ratio, error
	@set -e; for b in $(sort $(bench_bins)); do \
	    echo "== $${b##*/}"; BUILD='$(BUILD)' GOMP_SPINCOUNT=1000 $$b; done
	@set -e; for b in $(filter-out %/peers.sh,$(wildcard tests/bench/*.sh)); do \
	    echo "== $${b##*/}"; BUILD='$(BUILD)' sh $$b; done

bench-peers: $(bins) $(BUILD)/tests/bench/bench_text $(BUILD)/tests/bench/bench_decode ## measure beside peers, which are installed in build/peers
	BUILD='$(BUILD)' sh tests/bench/peers.sh $(PEERS)

bench-layouts: $(BUILD)/tests/bench/bench_layouts $(BUILD)/tests/bench/bench_overlap ## measure parallel layouts
	GOMP_SPINCOUNT=1000 $(BUILD)/tests/bench/bench_layouts
	$(BUILD)/tests/bench/bench_overlap

# Each target: build/fuzz/NAME -max_total_time=60 NEW tests/fuzz/corpus/NAME
# writes what it finds to the directory NEW.
# Kernels are left out, and no target calls them: their door leads nowhere.
fuzz:                        ## build the fuzz targets with clang's libFuzzer
	$(MAKE) BUILD=$(BUILD)/fuzz CC=clang CFLAGS='-O1 -g' isa_src= PAIRS= FEW= \
	    GLOO=0 \
	    lib_src='$(filter common/%,$(lib_src))' \
	    SANITIZE='$(ASAN) -fsanitize=fuzzer-no-link' fuzzers
fuzzers: $(fuzzers)

demo: $(bins)                ## corpus to text in a few minutes, on screen
	BUILD='$(BUILD)' sh share/examples/demo.sh

# What is there now is probed again by the next make.
deps:                        ## install missing Debian packages
	sh share/build/deps.sh
	@find $(BUILD) -name config.mk -exec touch -t 197001020000 {} +

# ---- installation ----

.PHONY: install uninstall clean distclean help
share = $(DESTDIR)$(PREFIX)/share
data := $(wildcard share/presets/* share/examples/*)
bash_dir = $(share)/bash-completion/completions
zsh_dir = $(share)/zsh/site-functions
fish_dir = $(share)/fish/vendor_completions.d

install: $(bins) $(gpu) $(completions) ## programs, man pages, presets, completions
	install -d '$(DESTDIR)$(BINDIR)' '$(bash_dir)' '$(zsh_dir)' \
	    '$(fish_dir)'
	install -m 755 $(bins) '$(DESTDIR)$(BINDIR)'
	@set -ex; for f in $(gpu); do \
	    install -D -m 755 $$f '$(DESTDIR)$(PREFIX)'/lib/gpt/$${f##*/}; done
	install -D -m 644 common/model/gpt_loss.h \
	    '$(DESTDIR)$(PREFIX)/include/gpt_loss.h'
	@set -ex; for f in $(data); do \
	    install -D -m 644 $$f '$(DESTDIR)$(DATADIR)'/$${f#share/}; done
	@set -ex; for m in $(wildcard man/*.[157]); do \
	    install -D -m 644 $$m '$(DESTDIR)$(MANDIR)'/man$${m##*.}/$${m##*/}; \
	done
	@set -ex; for p in $(programs); do c=$(BUILD)/completions/$$p; \
	    install -m 644 $$c.bash '$(bash_dir)'/$$p; \
	    install -m 644 $$c.zsh '$(zsh_dir)'/_$$p; \
	    install -m 644 $$c.fish '$(fish_dir)'/$$p.fish; done

uninstall:                   ## remove what install put there
	@set -ex; for p in $(programs); do rm -f '$(DESTDIR)$(BINDIR)'/$$p \
	    '$(bash_dir)'/$$p '$(zsh_dir)'/_$$p '$(fish_dir)'/$$p.fish; done
	@set -ex; for m in $(wildcard man/*.[157]); do \
	    rm -f '$(DESTDIR)$(MANDIR)'/man$${m##*.}/$${m##*/}; done
	rm -f '$(DESTDIR)$(PREFIX)/include/gpt_loss.h'
	rm -rf '$(DESTDIR)$(DATADIR)' '$(DESTDIR)$(PREFIX)/lib/gpt'

clean:                       ## remove build/
	rm -rf $(BUILD)

distclean: clean             ## ... and local settings
	rm -f config.mk

help:                        ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## */\1\t/p' Makefile share/build/cuda.mk | \
	    while IFS="$$(printf '\t')" read -r t h; do \
	    printf '%-14s %s\n' "$$t" "$$h"; done

endif # of goals that are made one after the other
