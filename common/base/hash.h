/* Checksums and digests. */
#ifndef GPT_BASE_HASH_H
#define GPT_BASE_HASH_H

#include "base/status.h"

/* CRC-32C (Castagnoli, RFC 3720 B.4), running: start with crc = 0. Uses the
 * SSE 4.2 instruction where the processor has it. */
uint32_t gpt_crc32c(uint32_t crc, const void *p, size_t n);
/* The same by tables alone: the fallback, and what tests compare with. */
uint32_t gpt_crc32c_portable(uint32_t crc, const void *p, size_t n);

/* CRC-32 (IEEE 802.3), of zip archives, running in the same way. Uses the
 * carry-less product where the processor has it; the second is as above. */
uint32_t gpt_crc32(uint32_t crc, const void *p, size_t n);
uint32_t gpt_crc32_portable(uint32_t crc, const void *p, size_t n);

/* Polynomials, bits reversed: of CRC-32C, and of CRC-32 (IEEE 802.3). */
#define GPT_CRC32C_POLYNOMIAL UINT32_C(0x82f63b78)
#define GPT_CRC32_POLYNOMIAL UINT32_C(0xedb88320)
/* The checksum of A followed by B, of n bytes, from those of both: parts that
 * several threads have seen become one. O(log n). */
uint32_t gpt_crc_join(uint32_t polynomial, uint32_t a, uint32_t b, int64_t n);

/* 64-bit mixing hash for tables, and for digests of what a run is made of.
 * Its values never change: checkpoints keep such digests (data/corpus.h). Not
 * for contents of files. */
uint64_t gpt_hash64(const void *p, size_t n, uint64_t seed);

/* MD5 of n bytes as 32 hexadecimal digits and NUL. For the names of files of
 * others; not for security. */
void gpt_md5(char hex[33], const void *p, size_t n);

/* SHA-256 of n bytes as 64 hexadecimal digits and NUL. */
void gpt_sha256(char hex[65], const void *p, size_t n);
/* The same without the instructions for it: the fallback, as above. */
void gpt_sha256_portable(char hex[65], const void *p, size_t n);

/* XXH64 with seed 0, running: what xxhsum(1) prints. A zeroed struct is the
 * start; a copy, taken at any moment, resumes from there. */
struct gpt_xxh64 {
    uint64_t lanes[4];
    uint64_t n; /* bytes so far */
    uint8_t rest[32]; /* n % 32 of them */
};
void gpt_xxh64_add(struct gpt_xxh64 *h, const void *p, size_t n);
uint64_t gpt_xxh64_end(const struct gpt_xxh64 *h);

/* FNV-1a, 64 bits, of a NUL-terminated name. */
uint64_t gpt_fnv1a(const char *s);

#endif
