/* The matrix instructions, as functions with the names that
 * kernels/cuda/mma.cuh gives them. Included by cuda.h. Fragments are laid out
 * over the lanes as the PTX manual says (mma.m16n8k16, mma.m16n8k8, ldmatrix);
 * sums run in the order of k. */
#ifndef GPT_EMU_TENSOR_H
#define GPT_EMU_TENSOR_H

namespace emu {

/* d (16, 8) = a (16, 16) b (16, 8) + d */
void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], EMU_HERE);
void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2], EMU_HERE);
/* d (16, 8) = a (16, 8) b (8, 8) + d, of floats that are TF32. */
void mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2], EMU_HERE);

/* n = 1, 2 or 4 matrices of 8 x 8 16-bit elements; lane 8 i + j brings the
 * address of row j of matrix i. */
void ldmatrix(uint32_t *to, int n, bool transposed, const void *row, EMU_HERE);

/* Writes 16 bytes: copies the first `bytes` and sets the rest to zero. This
 * happens when the thread waits for the copy's group or, when threads run in
 * reverse order, at once. */
void copy_async(void *to, const void *from, size_t bytes, EMU_HERE);
void copy_commit();
/* Waits for all groups but the newest `groups_left`. */
void copy_wait(unsigned groups_left);

} // namespace emu

#endif
