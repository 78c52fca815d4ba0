/* base/memory.h: alignment, zeroes, overflow, growth. */
#include "base/memory.h"
#include "tests/lib/tap.h"

static bool all_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0)
            return false;
    return true;
}

static void test_blocks(void)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 1 << 20};
    struct gpt_err err = {0};

    for (size_t i = 0; i < GPT_COUNT(sizes); i++) {
        char *p = gpt_alloc(sizes[i], 1);

        ok(p && (uintptr_t)p % GPT_ALIGN == 0 && all_zero(p, sizes[i]),
           "%zu bytes: aligned and zero", sizes[i]);
        if (p)
            memset(p, 0xaa, sizes[i]);
        gpt_free(p);
    }
    gpt_free(NULL);
    ok(!gpt_alloc(SIZE_MAX / 2, 3), "a product that overflows is refused");
    ok(!gpt_alloc(SIZE_MAX, 1), "so is one that padding would overflow");
    ok(!gpt_alloc(PTRDIFF_MAX, 1), "and one that no pointer difference holds");

    void *p = &err;
    is_int(gpt_new(&p, SIZE_MAX / 2, 4, "the tokens", &err), GPT_EFAIL,
           "gpt_new reports");
    ok(!p, "and gives NULL");
    ok(strstr(err.text, "the tokens") != NULL, "naming what for");
    is_int(gpt_new(&p, 3, 8, "x", &err), GPT_OK, "gpt_new works");
    gpt_free(p);
}

static void test_grow(void)
{
    struct gpt_err err = {0};
    int *list = NULL;
    size_t cap = 0;
    bool same = true;

    for (size_t n = 0; n < 1000; n++) {
        if (gpt_grow(&list, &cap, n + 1, sizeof(*list), "ints", &err))
            break;
        list[n] = (int)n;
    }
    for (size_t n = 0; n < 1000 && list; n++)
        same = same && list[n] == (int)n;
    ok(same && cap >= 1000, "a list grows and keeps its content");
    int *before = list;
    size_t old_cap = cap;
    is_int(gpt_grow(&list, &cap, SIZE_MAX / 2, sizeof(*list), "ints", &err),
           GPT_EFAIL, "growing too far fails");
    ok(list == before && cap == old_cap, "and leaves the list as it was");
    gpt_free(list);
    list = NULL;
    cap = 0;
    is_int(gpt_grow(&list, &cap, 0, sizeof(*list), "ints", &err), GPT_OK,
           "an empty list");
    ok(list != NULL, "is a valid pointer");
    gpt_free(list);
}

static void test_arena(void)
{
    struct gpt_arena a = {0};
    bool good = true;

    for (size_t n = 0; n < 3000; n += 7) {
        char *p = gpt_arena_alloc(&a, n, 1);

        good = good && p && (uintptr_t)p % GPT_ALIGN == 0 && all_zero(p, n);
        if (p)
            memset(p, 0x55, n);
        char *s = gpt_arena_printf(&a, "%zu-%s", n, "x");
        good = good && s && strtoul(s, NULL, 10) == n;
    }
    ok(good, "many blocks: aligned, zero, apart");
    char *s = gpt_arena_strdup(&a, "kept");
    char *large = gpt_arena_alloc(&a, 1 << 20, 1);
    ok(large && all_zero(large, 1 << 20), "a block larger than a chunk");
    is_str(s, "kept", "strings stay");
    ok(a.used > (1 << 20), "bytes are counted");
    ok(!gpt_arena_alloc(&a, SIZE_MAX / 2, 4), "overflow is refused");
    gpt_arena_free(&a);
    is_int(a.used, 0, "empty after free");
    ok(gpt_arena_strdup(&a, "") != NULL, "and usable again");
    gpt_arena_free(&a);
}

static void test_buffer(void)
{
    struct gpt_buf b = {0};
    int status = GPT_OK;

    for (int i = 0; i < 1000 && status == GPT_OK; i++)
        status = gpt_buf_printf(&b, "%d,", i);
    is_int(status, GPT_OK, "printf to a buffer");
    is_int(b.len, 10 * 2 + 90 * 3 + 900 * 4, "its length");
    ok(b.data && b.data[b.len] == '\0', "it is terminated");
    ok(b.data && strstr(b.data, ",998,999,") != NULL, "its content");
    is_int(gpt_buf_add(&b, "\0x", 2), GPT_OK, "bytes are added as they are");
    is_int(gpt_buf_add(&b, NULL, 0), GPT_OK, "none, too");
    is_int(gpt_buf_reserve(&b, SIZE_MAX - 3), GPT_EFAIL, "no overflow");
    gpt_buf_free(&b);
    ok(!b.data && b.len == 0, "empty after free");
}

int main(void)
{
    test_blocks();
    test_grow();
    test_arena();
    test_buffer();
    return tap_done();
}
