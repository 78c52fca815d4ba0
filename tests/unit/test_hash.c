/* base/hash.h: CRC-32C by RFC 3720 B.4, both ways of computing it. */
#include "base/hash.h"
#include "base/memory.h"
#include "tests/lib/tap.h"

static void test_vectors(void)
{
    uint8_t zeroes[32], ones[32], up[32], down[32];

    memset(zeroes, 0, 32);
    memset(ones, 0xff, 32);
    for (int i = 0; i < 32; i++) {
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(31 - i);
    }
    static const uint8_t iscsi_read[48] = {
        0x01, 0xc0, 0, 0,    0, 0, 0, 0, 0,    0, 0, 0, 0,    0, 0, 0,
        0x14, 0,    0, 0,    0, 0, 4, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
        0x28, 0,    0, 0,    0, 0, 0, 0, 0x02, 0, 0, 0, 0,    0, 0, 0};
    const struct {
        const char *name;
        const void *data;
        size_t n;
        uint32_t want;
    } rows[] = {
        {"32 zeroes", zeroes, 32, 0x8a9136aa},
        {"32 ones", ones, 32, 0x62a8ab43},
        {"32 counting up", up, 32, 0x46dd794e},
        {"32 counting down", down, 32, 0x113fdb5c},
        {"an iSCSI read command", iscsi_read, 48, 0xd9963a56},
        {"\"123456789\"", "123456789", 9, 0xe3069283},
        {"nothing", "", 0, 0},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        ok(gpt_crc32c(0, rows[i].data, rows[i].n) == rows[i].want,
           "crc of %s", rows[i].name);
        ok(gpt_crc32c_portable(0, rows[i].data, rows[i].n) == rows[i].want,
           "portable crc of %s", rows[i].name);
    }
}

static void test_agreement(void)
{
    enum { N = 20000 };
    uint8_t *data = gpt_alloc(N, 1);
    int wrong = 0;

    for (int i = 0; i < N; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 11);
    /* Around the block sizes, at every alignment. */
    static const size_t sizes[] = {1,    7,    8,    9,    1023, 3071, 3072,
                                   3073, 3080, 6143, 6144, 6145, 19000};
    for (size_t i = 0; i < GPT_COUNT(sizes); i++)
        for (size_t at = 0; at < 9; at++)
            wrong += gpt_crc32c(i, data + at, sizes[i]) !=
                     gpt_crc32c_portable(i, data + at, sizes[i]);
    is_int(wrong, 0, "both ways agree");
    uint32_t whole = gpt_crc32c(0, data, N);
    uint32_t parts = gpt_crc32c(gpt_crc32c(0, data, 5001), data + 5001,
                                N - 5001);
    ok(whole == parts, "a crc can be carried on");
    data[12345] ^= 4;
    ok(whole != gpt_crc32c(0, data, N), "one bit changes it");
    gpt_free(data);
}

static void test_md5(void)
{
    static const struct {
        const char *text, *digest;
    } md5[] = { /* RFC 1321, A.5 */
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"abc", "900150983cd24fb0d6963f7d28e17f72"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
         "d174ab98d277d9f5a5611c2c9f419d9f"},
        {"1234567890123456789012345678901234567890"
         "1234567890123456789012345678901234567890",
         "57edf4a22be3c955ac49da2e2107b67a"},
    };

    for (size_t i = 0; i < GPT_COUNT(md5); i++) {
        char hex[33];

        gpt_md5(hex, md5[i].text, strlen(md5[i].text));
        is_str(hex, md5[i].digest, "MD5 of '%s'", md5[i].text);
    }
}

static void test_sha256(void)
{
    static const struct {
        const char *text, *digest;
    } sha[] = { /* FIPS 180-2, appendix B, and nothing */
        {"",
         "e3b0c44298fc1c149afbf4c8996fb924"
         "27ae41e4649b934ca495991b7852b855"},
        {"abc",
         "ba7816bf8f01cfea414140de5dae2223"
         "b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039"
         "a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
         "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b049237"
         "0b249b11e8f07a51afac45037afee9d1"},
    };

    for (size_t i = 0; i < GPT_COUNT(sha); i++) {
        char hex[65];

        gpt_sha256(hex, sha[i].text, strlen(sha[i].text));
        is_str(hex, sha[i].digest, "SHA-256 of '%s'", sha[i].text);
        gpt_sha256_portable(hex, sha[i].text, strlen(sha[i].text));
        is_str(hex, sha[i].digest, "the same without instructions for it");
    }
    char letters[65], hex[65], *many = gpt_alloc(1000000, 1);
    memset(many, 'a', 1000000);
    gpt_sha256_portable(hex, many, 1000000);
    snprintf(letters, sizeof(letters), "%s%s",
             "cdc76e5c9914fb9281a1c7e284d73e67",
             "f1809a48a497200e046d39ccc7112cd0");
    is_str(hex, letters, "SHA-256 of a million letters");
    gpt_sha256(letters, many, 1000000);
    is_str(hex, letters, "the same without instructions for it");
    bool same = true;
    for (size_t n = 0; n < 300; n++) { /* every length of the last block */
        gpt_sha256(hex, many, n);
        gpt_sha256_portable(letters, many, n);
        same = same && strcmp(hex, letters) == 0;
    }
    ok(same, "the two agree for 0 to 299 bytes");
    gpt_free(many);
}

static void test_xxh64(void)
{
    static const struct {
        const char *text;
        uint64_t digest;
    } xxh[] = { /* of xxhash_spec.md and xxhsum */
        {"", 0xef46db3751d8e999},
        {"a", 0xd24ec4f1a98c6e5b},
        {"abc", 0x44bc2cf5ad770999},
        {"Nobody inspects the spammish repetition", 0xfbcea83c8a378bf1},
    };

    for (size_t i = 0; i < GPT_COUNT(xxh); i++) {
        struct gpt_xxh64 h = {0};

        gpt_xxh64_add(&h, xxh[i].text, strlen(xxh[i].text));
        ok(gpt_xxh64_end(&h) == xxh[i].digest, "XXH64 of '%s'", xxh[i].text);
    }
    uint8_t bytes[200];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 37);
    int same = 0;
    for (size_t n = 0; n <= sizeof(bytes); n++) {
        struct gpt_xxh64 once = {0}, parts = {0};

        gpt_xxh64_add(&once, bytes, n);
        for (size_t i = 0; i < n; i += 1 + i % 40)
            gpt_xxh64_add(&parts, bytes + i,
                          n - i < 1 + i % 40 ? n - i : 1 + i % 40);
        same += gpt_xxh64_end(&once) == gpt_xxh64_end(&parts);
    }
    is_int(same, 201, "XXH64 in pieces");
}

static void test_tables(void)
{
    ok(gpt_fnv1a("") == 0xcbf29ce484222325, "FNV-1a of nothing");
    ok(gpt_fnv1a("foobar") == 0x85944171f73967e8, "FNV-1a of foobar");

    char key[40] = {0};
    int equal = 0;
    uint64_t seen[40];
    for (size_t n = 0; n < 40; n++) {
        seen[n] = gpt_hash64(key, n, 1);
        for (size_t k = 0; k < n; k++)
            equal += seen[k] == seen[n];
    }
    is_int(equal, 0, "hash64: runs of zeroes differ by length");
    ok(gpt_hash64("", 0, 0) == 0xb14e3f97956d2cc9 &&
           gpt_hash64("abcdefghijklmnopqrs", 19, 1) == 0x20d1e00049b03fc7,
       "hash64: values that digests in checkpoints are made of");
    ok(gpt_hash64("abc", 3, 1) != gpt_hash64("abc", 3, 2), "hash64: seeds");
    ok(gpt_hash64("abc", 3, 1) == gpt_hash64("abcd", 3, 1),
       "hash64 reads no further than n");
}

/* Cut anywhere, parts join to the sum of the whole, whichever of them is
 * empty; the polynomial is an argument. */
static void test_join(void)
{
    enum { N = 70000 };
    static const int64_t cuts[] = {0, 1, 7, 4096, 65535, 65536, N - 1, N};
    uint8_t *data = gpt_alloc(N, 1);

    for (int i = 0; i < N; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    const uint32_t want = gpt_crc32c(0, data, N);
    for (size_t i = 0; i < GPT_COUNT(cuts); i++) {
        const uint32_t a = gpt_crc32c(0, data, (size_t)cuts[i]);
        const uint32_t b =
            gpt_crc32c(0, data + cuts[i], (size_t)(N - cuts[i]));

        ok(gpt_crc_join(GPT_CRC32C_POLYNOMIAL, a, b, N - cuts[i]) == want,
           "joined at %lld", (long long)cuts[i]);
    }
    /* zlib's crc32 of "12345" and "6789" */
    ok(gpt_crc_join(GPT_CRC32_POLYNOMIAL, 0xcbf53a1c, 0x9dbabf87, 4) ==
           0xcbf43926,
       "CRC-32 joins, too");
    gpt_free(data);
}

int main(void)
{
    test_vectors();
    test_agreement();
    test_md5();
    test_sha256();
    test_xxh64();
    test_tables();
    test_join();
    return tap_done();
}
