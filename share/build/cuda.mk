# The two builds of kernels/cuda: libgpt-cuda.so by nvcc, for the GPUs of
# $(GPU_ARCHS), and libgpt-cuda-emu.so by the C++ compiler, against kernels/emu.
# Both are opened at run time; no program is linked to them or their libraries.
#
# What ptxas reports of registers and spills stays in $(BUILD)/cuda/NAME.ptxas.

# Names ending in _sm90a use instructions that only Hopper has: they are built
# for it alone, when 90 is among the architectures.
cuda_src := $(wildcard kernels/cuda/*.cu)
has_hopper := $(filter 90,$(GPU_ARCHS))
cuda_obj := $(patsubst kernels/cuda/%.cu,$(BUILD)/cuda/%.o,\
            $(if $(has_hopper),$(cuda_src),$(filter-out %_sm90a.cu,$(cuda_src))))
emu_src := $(wildcard kernels/emu/*.cc kernels/emu/ptx/*.cc)
emu_obj := $(patsubst kernels/cuda/%.cu,$(BUILD)/emu/%.o,\
           $(filter-out %/nccl_lib.cu,$(cuda_src))) \
           $(emu_src:kernels/emu/%.cc=$(BUILD)/emu/%.o)
# What they need of the library: few files, compiled to be shared.
pic_obj := $(patsubst %,$(BUILD)/pic/%.o,status dtype convert cpu cpu_tiles)

# Machine code for each architecture and, for those to come, PTX of the newest.
sass = -gencode arch=compute_$(1),code=sm_$(1)
newest = $(lastword $(GPU_ARCHS))
gencode := $(foreach a,$(GPU_ARCHS),$(call sass,$(a))) \
           -gencode arch=compute_$(newest),code=compute_$(newest)
NVFLAGS = -std=c++17 -O3 -lineinfo -Xptxas -v -Xfatbin -compress-all -Xcompiler \
          -Wall,-Wextra,-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti
cuda_flags = -D_GNU_SOURCE -DGPT_CUDA_ARCHS='"$(strip $(GPU_ARCHS))"' -Icommon \
             -Ikernels -I. $(if $(has_hopper),-DGPT_CUDA_HOPPER) \
             -DGPT_INTERFACE=$(GPT_INTERFACE)

.PHONY: cuda emu
cuda: $(gpu)                 ## build libgpt-cuda.so
emu: $(emu)                  ## build libgpt-cuda-emu.so

# This file is a prerequisite, since its lists say what is linked.
$(BUILD)/libgpt-cuda.so: $(cuda_obj) $(pic_obj) share/build/cuda.mk
	$(NVCC) -shared -cudart static -Xlinker --exclude-libs,ALL \
	    -Xlinker --as-needed -Xlinker -rpath=$(CUDA_LIB) \
	    -o $@ $(filter %.o,$^) -ldl

$(BUILD)/libgpt-cuda-emu.so: $(emu_obj) $(pic_obj) share/build/cuda.mk
	$(CXX) -shared $(if $(SANITIZE),,-Wl,-z,defs) $(SANITIZE) $(LDFLAGS) \
	    -o $@ $(filter %.o,$^) -lpthread

# The report goes into a file; warnings and errors come out of it again. What
# tests look into stays in NAME.keep: machine code of the flash kernels, and of
# all kernels the PTX for the first architecture (of fp8.cu that for 89, too, which
# has instructions for eight bits), with lines of the source.
with_kernels := $(shell grep -l __global__ $(cuda_src))
keep = $(if $(filter %/$*.cu,$(with_kernels)),$(@:.o=.keep))
kept = -name '*.cubin' $(if $(filter flash_%,$*),,-name none) -o \
       -name $*.ptx -o -name '$*.compute_$(firstword $(GPU_ARCHS)).ptx' \
       -o -name fp8.compute_89.ptx
$(BUILD)/cuda/%.o: kernels/cuda/%.cu
	@mkdir -p $(@D) $(keep)
	@echo '$(NVCC) $<'
	@$(NVCC) $(NVFLAGS) $(cuda_flags) $(if $(keep),--keep --keep-dir $(keep)) \
	    $(if $(filter %_sm90a,$*),$(call sass,90a),$(gencode)) \
	    -MMD -MP -MF $(@:.o=.d) -MT $@ -c -o $@ $< 2> $(@:.o=.ptxas) || \
	    { cat $(@:.o=.ptxas) >&2; exit 1; }
	@grep -B1 -A3 'warning' $(@:.o=.ptxas) >&2 || true
	@$(if $(keep),find $(keep) -type f ! \( $(kept) \) -exec rm {} +)

emu_flags = $(ALL_CXXFLAGS) -fPIC -fvisibility=hidden -fno-math-errno \
            -fno-trapping-math -Wno-unknown-pragmas -Wno-psabi \
            -DGPT_CUDA_EMU -DGPT_CUDA_HOPPER -DGPT_INTERFACE=$(GPT_INTERFACE) \
            -D_GNU_SOURCE -Icommon -Ikernels -Ikernels/emu/include -I. -MMD -MP
$(BUILD)/emu/%.o: kernels/cuda/%.cu
	@mkdir -p $(@D)
	$(CXX) $(emu_flags) -x c++ -c -o $@ $<

$(BUILD)/emu/%.o: kernels/emu/%.cc
	@mkdir -p $(@D)
	$(CXX) $(emu_flags) -c -o $@ $<

# The emulation's own tests; files of kernels, but of no plugin.
$(emu_test): $(BUILD)/tests/emu/%.t: $(BUILD)/emu/%.o \
             $(filter-out $(BUILD)/emu/nccl.o,\
             $(emu_src:kernels/emu/%.cc=$(BUILD)/emu/%.o)) $(pic_obj)
	@mkdir -p $(@D)
	$(CXX) $(SANITIZE) $(LDFLAGS) -o $@ $^ -lpthread

$(BUILD)/emu/%.o: tests/emu/%.cu
	@mkdir -p $(@D)
	$(CXX) $(emu_flags) -x c++ -c -o $@ $<

$(BUILD)/pic/%.o: common/base/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -fPIC -fvisibility=hidden -MMD -MP \
	    -c -o $@ $<
