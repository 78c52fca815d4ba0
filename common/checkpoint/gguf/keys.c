/* Keys of a GGUF file as bytes; see gguf.h. A failure is kept until the end, as
 * all of them are the same one: no memory. */
#include "checkpoint/gguf/gguf.h"

#include "base/num.h"

#include <string.h>

/* Nothing is written after a failure that could be read: the buffer is
 * dropped as a whole. */
static void add(struct gpt_gguf_keys *k, const void *p, size_t n)
{
    if (gpt_buf_add(&k->b, p, n) != GPT_OK)
        k->failed = true;
}

void gpt_gguf_add_u32(struct gpt_gguf_keys *k, uint32_t v)
{
    char bytes[4];

    gpt_put_u32(bytes, v);
    add(k, bytes, sizeof(bytes));
}

void gpt_gguf_add_real(struct gpt_gguf_keys *k, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    gpt_gguf_add_u32(k, bits);
}

void gpt_gguf_add_u64(struct gpt_gguf_keys *k, uint64_t v)
{
    char bytes[8];

    gpt_put_u64(bytes, v);
    add(k, bytes, sizeof(bytes));
}

/* Lengths are of 64 bits, and there is no NUL and no padding after a string. */
void gpt_gguf_add_string(struct gpt_gguf_keys *k, const void *p, size_t n)
{
    gpt_gguf_add_u64(k, n);
    add(k, p, n);
}

/* The number of keys is in the header before them, so it is counted here. */
static void begin_key(struct gpt_gguf_keys *k, const char *name,
                      enum gpt_gguf_type type)
{
    gpt_gguf_add_string(k, name, strlen(name));
    gpt_gguf_add_u32(k, type);
    k->n++;
}

/* Little-endian, so the first bytes of a wide number are the narrow one. */
void gpt_gguf_put_int(struct gpt_gguf_keys *k, const char *name,
                      enum gpt_gguf_type type, int64_t value)
{
    char bytes[8];
    const size_t n = type == GPT_GGUF_BOOL ? 1 : type == GPT_GGUF_U64 ? 8 : 4;

    begin_key(k, name, type);
    gpt_put_u64(bytes, (uint64_t)value);
    add(k, bytes, n);
}

/* llama.cpp reads all real numbers as float, and takes no double in their
 * place. */
void gpt_gguf_put_real(struct gpt_gguf_keys *k, const char *name, double value)
{
    begin_key(k, name, GPT_GGUF_F32);
    gpt_gguf_add_real(k, (float)value);
}

void gpt_gguf_put_text(struct gpt_gguf_keys *k, const char *name,
                       const char *text)
{
    begin_key(k, name, GPT_GGUF_STRING);
    gpt_gguf_add_string(k, text, strlen(text));
}

/* The caller adds as many elements as it says here; nothing checks that but
 * the tests, which read the file again. */
void gpt_gguf_put_array(struct gpt_gguf_keys *k, const char *name,
                        enum gpt_gguf_type element, int64_t n)
{
    begin_key(k, name, GPT_GGUF_ARRAY);
    gpt_gguf_add_u32(k, element);
    gpt_gguf_add_u64(k, (uint64_t)n);
}
