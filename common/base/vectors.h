/* What GCC and clang name differently about vectors. */
#ifndef GPT_BASE_VECTORS_H
#define GPT_BASE_VECTORS_H

/* Lanes of a and of b, which follow those of a, by their numbers: as many as
 * there are in a. `type` is a vector of integers of the lanes' size. */
#ifdef __clang__
#define GPT_LANES(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define GPT_LANES(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

#endif
