/* Reading of a ModelProto: Protocol Buffers by hand, as a library for them
 * would be a dependency for five messages. Every length is checked against what
 * is left of its message. A message is a row of fields, each a key (field
 * number and wire type) and a value; a field that is not known here is passed
 * over by its wire type. Start at gpt_sp_model_read(). */
#include "tokenizer/sp_model.h"

#include "base/memory.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/hf_files.h"
#include "tokenizer/ids.h"
#include "tokenizer/tiktoken_file.h"

#include <assert.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */

/* What all steps of reading need. */
struct reading {
    struct gpt_sp_model *m;
    const char *path;
    struct gpt_err *err;
};

/* A message, or what is left of one. */
struct message {
    const uint8_t *p, *end;
};

/* A field: `number` of varints and fixed ones, `bytes` of the others. */
struct field {
    unsigned id, wire;
    uint64_t number;
    struct gpt_str bytes;
};

/* Reports a place in the file. */
static int malformed(const struct reading *r, const uint8_t *at,
                     const char *why)
{
    return gpt_fail(r->err, GPT_EDATA, "%s: offset %zu: %s", r->path,
                    (size_t)(at - (const uint8_t *)r->m->file), why);
}

/* A model that would give other ids is refused by the field that says so. */
static int unsupported(const struct reading *r, const char *field,
                       const char *value)
{
    return gpt_fail(r->err, GPT_EDATA, "%s: %s: %s is not supported", r->path,
                    field, value);
}

/* A number in groups of seven bits, the lowest first; the high bit of a byte
 * says that more follow. */
static bool read_varint(struct message *msg, uint64_t *v)
{
    *v = 0;
    for (unsigned shift = 0; shift < 64 && msg->p < msg->end; shift += 7) {
        uint8_t byte = *msg->p++;

        *v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

/* n bytes, little-endian. */
static bool read_fixed(struct message *msg, size_t n, uint64_t *v)
{
    *v = 0;
    if ((size_t)(msg->end - msg->p) < n)
        return false;
    for (size_t i = 0; i < n; i++)
        *v |= (uint64_t)*msg->p++ << 8 * i;
    return true;
}

/* Takes the next field off the message, which is not empty. */
static int next_field(const struct reading *r, struct message *msg,
                      struct field *f)
{
    const uint8_t *start = msg->p;
    uint64_t key, len;

    assert(msg->p < msg->end);
    bool good = read_varint(msg, &key); /* else a wire type that is none */

    *f = (struct field){.id = good ? (unsigned)(key >> 3 & 0xFFFFFF) : 0,
                        .wire = good ? (unsigned)(key & 7) : 8};
    switch (f->wire) { /* groups, 3 and 4, are of the past and not in models */
    case VARINT:
        good = read_varint(msg, &f->number);
        break;
    case FIXED64:
        good = read_fixed(msg, 8, &f->number);
        break;
    case FIXED32:
        good = read_fixed(msg, 4, &f->number);
        break;
    case BYTES:
        good = read_varint(msg, &len) && len <= (uint64_t)(msg->end - msg->p);
        if (good) {
            f->bytes = (struct gpt_str){(const char *)msg->p, (size_t)len};
            msg->p += len;
        }
        break;
    default:
        good = false;
    }
    assert(msg->p <= msg->end);
    return good ? GPT_OK : malformed(r, start, "not a SentencePiece model");
}

static struct message message_of(struct gpt_str s)
{
    const uint8_t *p = (const uint8_t *)s.data;

    return (struct message){p, p + s.len};
}

/* ---- the messages ---- */

/* Fields: 1 the text, 2 the score, 3 the type. */
static int read_piece(const struct reading *r, struct gpt_str bytes,
                      int64_t id)
{
    struct message msg = message_of(bytes);
    struct gpt_sp_piece *piece = &r->m->pieces[id];
    struct field f;

    piece->type = GPT_SP_NORMAL;
    while (msg.p < msg.end) {
        GPT_TRY(next_field(r, &msg, &f));
        if (f.id == 1 && f.wire == BYTES) {
            r->m->texts[id] = f.bytes;
        } else if (f.id == 2 && f.wire == FIXED32) {
            uint32_t bits = (uint32_t)f.number;

            memcpy(&piece->score, &bits, sizeof(bits));
        } else if (f.id == 3 && f.wire == VARINT) {
            if (f.number < GPT_SP_NORMAL || f.number > GPT_SP_BYTE)
                return malformed(r, msg.p, "unknown type of a piece");
            piece->type = (uint8_t)f.number;
        }
    }
    if (r->m->texts[id].len == 0)
        return malformed(r, msg.p, "a piece without text");
    if (r->m->texts[id].len > GPT_TOKEN_MAX)
        return malformed(r, msg.p, "a piece of more than 65536 bytes");
    /* NaN and infinities have no order that two searches would agree on */
    if (!(piece->score <= 1e30f && piece->score >= -1e30f))
        return malformed(r, msg.p, "the score of a piece is not finite");
    return GPT_OK;
}

/* Keeps what decides on ids of how the model was trained. Fields: 3 model type,
 * 24 white space as suffix, 35 byte fallback, 44 the unknown piece's surface,
 * 47 the text of the piece that ends a sentence. */
static int read_trainer(const struct reading *r, struct gpt_str bytes,
                        struct gpt_str *eos)
{
    struct message msg = message_of(bytes);
    struct field f;

    while (msg.p < msg.end) {
        GPT_TRY(next_field(r, &msg, &f));
        if (f.id == 3 && f.wire == VARINT) {
            if (f.number != 1 && f.number != 2)
                return unsupported(r, "trainer_spec.model_type",
                                   f.number == 3   ? "WORD"
                                   : f.number == 4 ? "CHAR"
                                                   : "this number");
            r->m->unigram = f.number == 1;
        } else if (f.id == 24 && f.wire == VARINT && f.number) {
            return unsupported(r, "trainer_spec.treat_whitespace_as_suffix",
                               "true");
        } else if (f.id == 35 && f.wire == VARINT) {
            r->m->byte_fallback = f.number != 0;
        } else if (f.id == 44 && f.wire == BYTES) {
            r->m->unk_surface = f.bytes;
        } else if (f.id == 47 && f.wire == BYTES) {
            *eos = f.bytes;
        }
    }
    return GPT_OK;
}

/* Fields: 2 the map, 3 a space before the text, 4 no spaces too many, 5 spaces
 * as U+2581. */
static int read_normalizer(const struct reading *r, struct gpt_str bytes)
{
    struct message msg = message_of(bytes);
    struct gpt_sp_model *m = r->m;
    struct field f;

    while (msg.p < msg.end) {
        GPT_TRY(next_field(r, &msg, &f));
        if (f.id == 2 && f.wire == BYTES)
            m->charsmap = f.bytes;
        else if (f.id == 3 && f.wire == VARINT)
            m->dummy_prefix = f.number != 0;
        else if (f.id == 4 && f.wire == VARINT)
            m->remove_spaces = f.number != 0;
        else if (f.id == 5 && f.wire == VARINT)
            m->escape_spaces = f.number != 0;
    }
    return GPT_OK;
}

/* What is done to text on the way back. It must be nothing, or tokens would not
 * be the text. */
static int read_denormalizer(const struct reading *r, struct gpt_str bytes)
{
    struct message msg = message_of(bytes);
    struct field f;

    while (msg.p < msg.end) {
        GPT_TRY(next_field(r, &msg, &f));
        if (f.id == 2 && f.wire == BYTES && f.bytes.len)
            return unsupported(r, "denormalizer_spec", "a character map");
    }
    return GPT_OK;
}

/* Counts the pieces and allocates them: a first pass, so that memory is asked
 * for once and the size of the file justifies it. */
static int count_pieces(const struct reading *r)
{
    struct gpt_sp_model *m = r->m;
    struct message msg = message_of((struct gpt_str){m->file, m->len});
    struct field f;

    while (msg.p < msg.end) {
        GPT_TRY(next_field(r, &msg, &f));
        m->n += f.id == 1 && f.wire == BYTES;
    }
    if (m->n == 0 || m->n > GPT_VOCAB_MAX)
        return gpt_fail(r->err, GPT_EDATA, "%s: the model has %lld pieces, "
                        "must have 1 to %lld", r->path, (long long)m->n,
                        (long long)GPT_VOCAB_MAX);
    GPT_TRY(gpt_new(&m->texts, (size_t)m->n, sizeof(*m->texts),
                    "a vocabulary", r->err));
    return gpt_new(&m->pieces, (size_t)m->n, sizeof(*m->pieces),
                   "a vocabulary", r->err);
}

/* The second pass. Messages may come in any order, and texts stay where they
 * are in the file's memory. */
static int read_model(const struct reading *r, struct gpt_str *eos)
{
    struct message msg = message_of((struct gpt_str){r->m->file, r->m->len});
    struct field f;
    int64_t id = 0;

    while (msg.p < msg.end) {
        GPT_TRY(next_field(r, &msg, &f));
        if (f.wire != BYTES)
            continue;
        if (f.id == 1)
            GPT_TRY(read_piece(r, f.bytes, id++));
        else if (f.id == 2)
            GPT_TRY(read_trainer(r, f.bytes, eos));
        else if (f.id == 3)
            GPT_TRY(read_normalizer(r, f.bytes));
        else if (f.id == 5)
            GPT_TRY(read_denormalizer(r, f.bytes));
    }
    return GPT_OK;
}

/* ---- pieces by their text ---- */

/* True for the pieces that a search may make; the others are named only. */
static bool is_normal(uint8_t type)
{
    return type == GPT_SP_NORMAL || type == GPT_SP_USER ||
           type == GPT_SP_UNUSED;
}

int gpt_sp_byte_of(struct gpt_str text)
{
    static const char digits[] = "0123456789ABCDEF";

    if (text.len != 6 || memcmp(text.data, "<0x", 3) != 0 ||
        text.data[5] != '>' || !text.data[3] || !text.data[4])
        return -1;
    const char *high = strchr(digits, text.data[3]);
    const char *low = strchr(digits, text.data[4]);
    return high && low ? (int)((high - digits) << 4 | (low - digits)) : -1;
}

/* Enters a piece in its map. SentencePiece, too, has two: a control piece and a
 * normal one may have the same text. */
static int index_piece(const struct reading *r, int32_t id)
{
    struct gpt_sp_model *m = r->m;
    struct gpt_str text = m->texts[id];
    uint8_t type = m->pieces[id].type;

    if (gpt_token_map_add(is_normal(type) ? &m->normal : &m->reserved, id) >= 0)
        return gpt_fail(r->err, GPT_EDATA, "%s: piece '%.*s' is there twice",
                        r->path, gpt_str_shown(text.len),
                        text.data);
    if (type == GPT_SP_USER && text.len > m->longest_user)
        m->longest_user = text.len;
    if (type == GPT_SP_UNKNOWN) {
        if (m->unk >= 0)
            return gpt_fail(r->err, GPT_EDATA, "%s: pieces %d and %d are both "
                            "of type UNKNOWN", r->path, (int)m->unk, (int)id);
        m->unk = id;
    }
    if (type != GPT_SP_BYTE)
        return GPT_OK;
    int byte = gpt_sp_byte_of(text);
    if (byte < 0)
        return gpt_fail(r->err, GPT_EDATA, "%s: piece %d of type BYTE is "
                        "'%.*s', must be '<0x00>' to '<0xFF>'",
                        r->path, (int)id,
                        gpt_str_shown(text.len), text.data);
    m->byte_id[byte] = id;
    return GPT_OK;
}

/* Each map has room for all pieces: n of both is little. */
static int index_pieces(const struct reading *r)
{
    struct gpt_sp_model *m = r->m;

    GPT_TRY(gpt_token_map_open(&m->normal, m->texts, (size_t)m->n, r->err));
    GPT_TRY(gpt_token_map_open(&m->reserved, m->texts, (size_t)m->n, r->err));
    for (int64_t id = 0; id < m->n; id++)
        GPT_TRY(index_piece(r, (int32_t)id));
    if (m->unk < 0)
        return gpt_fail(r->err, GPT_EDATA, "%s: no piece has type UNKNOWN",
                        r->path);
    for (int byte = 0; byte < 256 && m->byte_fallback; byte++)
        if (m->byte_id[byte] < 0)
            return gpt_fail(r->err, GPT_EDATA, "%s: byte_fallback is set, but "
                            "byte 0x%02x has no piece", r->path,
                            (unsigned)byte);
    return GPT_OK;
}

int gpt_sp_model_read(struct gpt_sp_model *m, const char *path,
                      struct gpt_err *err)
{
    struct reading r = {.m = m, .path = path, .err = err};
    struct gpt_str eos = {"</s>", 4};

    /* what an absent field means in the proto's definition */
    *m = (struct gpt_sp_model){.unigram = true, .dummy_prefix = true,
                               .remove_spaces = true, .escape_spaces = true,
                               .unk_surface = {" \u2047 ", 5},
                               .unk = -1};
    for (int byte = 0; byte < 256; byte++)
        m->byte_id[byte] = -1;
    /* a GGUF file holds the same among its keys */
    GPT_TRY(gpt_gguf_read(GPT_HF_PIECES, &m->file, &m->len, path,
                          GPT_VOCAB_FILE_MAX, err));
    /* Meta's files of Llama 3 have the name of a SentencePiece model */
    if (gpt_ranks_begin(m->file, m->len))
        return gpt_fail(err, GPT_EDATA,
                        "%s: no SentencePiece model, but ranks of a "
                        "TikTokenizer, as Llama 3 has them", path);
    GPT_TRY(count_pieces(&r));
    GPT_TRY(read_model(&r, &eos));
    GPT_TRY(index_pieces(&r));
    /* by its text, as SentencePiece finds it, and not by the trainer's id */
    m->eos = gpt_token_map_find(&m->reserved, eos.data, eos.len);
    return GPT_OK;
}

void gpt_sp_model_free(struct gpt_sp_model *m)
{
    gpt_token_map_close(&m->normal);
    gpt_token_map_close(&m->reserved);
    gpt_free(m->texts);
    gpt_free(m->pieces);
    gpt_free(m->file);
    *m = (struct gpt_sp_model){0};
}

/* The reserved ones first, as PieceToId() does it. */
int32_t gpt_sp_find(const struct gpt_sp_model *m, const char *piece,
                    size_t len)
{
    int32_t id = gpt_token_map_find(&m->reserved, piece, len);

    if (id < 0)
        id = gpt_token_map_find(&m->normal, piece, len);
    return id < 0 ? m->unk : id;
}

size_t gpt_sp_user_prefix(const struct gpt_sp_model *m, const char *text,
                          size_t len)
{
    size_t n = len < m->longest_user ? len : m->longest_user;

    /* the longest wins, so the lengths are tried from above */
    for (; n > 0; n--) {
        int32_t id = gpt_token_map_find(&m->normal, text, n);

        if (id >= 0 && m->pieces[id].type == GPT_SP_USER)
            return n;
    }
    return 0;
}
