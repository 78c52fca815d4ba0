/* test_pretok.c with the AVX-512 forms of the pre-tokenizers, which few
 * machines can run; here their intrinsics work byte by byte. So mistakes in a
 * vector form show on any processor. tests/emu/avx512.sh tests the real
 * instructions. */
#ifdef __x86_64__

#include "tests/emu/lanes512.h"

#include "base/cpu.h"

#define gpt_cpu_has(isa) (strcmp(isa, "avx512") == 0)

/* Both files have these for themselves. */
#define form gpt2_form
#define forms gpt2_forms
#define classify_fn gpt2_classify_fn
#define classify_avx2 gpt2_classify_avx2
#define classify_avx512 gpt2_classify_avx512
#define add_wide gpt2_add_wide
#define cut_contractions gpt2_cut_contractions
#define piece_begins gpt2_piece_begins
#include "common/tokenizer/pretok_gpt2_simd.c"
#undef form
#undef forms
#undef classify_fn
#undef classify_avx2
#undef classify_avx512
#undef add_wide
#undef cut_contractions
#undef piece_begins
#include "common/tokenizer/pretok_words_simd.c"

#include "tests/unit/test_pretok.c"

#else

#include "tests/lib/tap.h"

int main(void)
{
    skip("vectors of another processor");
    return tap_done();
}

#endif
