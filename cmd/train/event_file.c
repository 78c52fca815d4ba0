/* Writing of event files; see event_file.h. Start at gpt_event_file_scalar().
 *
 * A record is: length (8 bytes), its checksum (4), the event, its checksum (4),
 * little-endian. Checksums are CRC-32C, rotated and moved by a constant, so
 * that a checksum of data that hold checksums is not a weak one. An event is a
 * protocol buffer of the fields   1 wall_time (double), 2 step (int64), 3
 * file_version (string, first event),   5 summary, of 1 value, of 1 tag
 * (string) and 2 simple_value (float). A text is a value of 1 tag, 8 tensor (1
 * dtype, 7 for strings; 2 tensor_shape, of 2 dim, of 1 size; 8 string_val), and
 * 9 metadata, of 1 plugin_data, of 1 plugin_name, by which TensorBoard knows
 * what draws it. */
#include "cmd/train/event_file.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct gpt_event_file {
    struct gpt_append *log;
    struct gpt_buf event, record;
};

/* ---- protocol buffers ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* Appends a number, seven bits a byte, the lowest first; the eighth bit says
 * that more bytes follow. */
static int add_varint(struct gpt_buf *b, uint64_t v)
{
    uint8_t bytes[10];
    size_t n = 0;

    do {
        bytes[n++] = (uint8_t)((v & 0x7F) | (v > 0x7F ? 0x80 : 0));
        v >>= 7;
    } while (v > 0);
    return gpt_buf_add(b, bytes, n);
}

/* Appends the number of a field, and how its value is written. */
static int add_key(struct gpt_buf *b, unsigned field, unsigned type)
{
    return add_varint(b, field << 3 | type);
}

static int add_double(struct gpt_buf *b, unsigned field, double v)
{
    uint64_t bits;
    uint8_t bytes[8];

    memcpy(&bits, &v, sizeof(bits));
    gpt_put_u64(bytes, bits);
    GPT_TRY(add_key(b, field, FIXED64));
    return gpt_buf_add(b, bytes, sizeof(bytes));
}

static int add_float(struct gpt_buf *b, unsigned field, float v)
{
    uint32_t bits;
    uint8_t bytes[4];

    memcpy(&bits, &v, sizeof(bits));
    gpt_put_u32(bytes, bits);
    GPT_TRY(add_key(b, field, FIXED32));
    return gpt_buf_add(b, bytes, sizeof(bytes));
}

static int add_string(struct gpt_buf *b, unsigned field, const char *s)
{
    GPT_TRY(add_key(b, field, BYTES));
    GPT_TRY(add_varint(b, strlen(s)));
    return gpt_buf_add(b, s, strlen(s));
}

static size_t varint_size(uint64_t v)
{
    size_t n = 1;

    while (v >>= 7)
        n++;
    return n;
}

/* Appends a summary of one number. Messages inside messages begin with their
 * size: that of a value is a tag with key and length, and a float with its
 * key. */
static int add_summary(struct gpt_buf *b, const char *tag, float value)
{
    const size_t tag_size = strlen(tag);
    const size_t size = 1 + varint_size(tag_size) + tag_size + 5;

    GPT_TRY(add_key(b, 5, BYTES));
    GPT_TRY(add_varint(b, 1 + varint_size(size) + size));
    GPT_TRY(add_key(b, 1, BYTES));
    GPT_TRY(add_varint(b, size));
    GPT_TRY(add_string(b, 1, tag));
    return add_float(b, 2, value);
}

/* Appends a message inside another one: its key, its size, and its contents. */
static int add_message(struct gpt_buf *b, unsigned field,
                       const struct gpt_buf *message)
{
    GPT_TRY(add_key(b, field, BYTES));
    GPT_TRY(add_varint(b, message->len));
    return gpt_buf_add(b, message->data, message->len);
}

/* Appends a one-dimensional tensor of one string, as TensorBoard's own writer
 * makes it of a text. */
static int add_text_value(struct gpt_buf *value, const char *tag,
                          const char *text)
{
    static const char shape[] = "\x12\x02\x08\x01"; /* one dim of size 1 */
    static const char plugin[] = "\x0a\x06\x0a\x04text";
    struct gpt_buf tensor = {0};
    int status;

    GPT_TRY_GOTO(status, add_string(value, 1, tag), out);
    GPT_TRY_GOTO(status, add_key(&tensor, 1, VARINT), out);
    GPT_TRY_GOTO(status, add_varint(&tensor, 7), out);
    GPT_TRY_GOTO(status, add_string(&tensor, 2, shape), out);
    GPT_TRY_GOTO(status, add_string(&tensor, 8, text), out);
    GPT_TRY_GOTO(status, add_message(value, 8, &tensor), out);
    status = add_string(value, 9, plugin);
out:
    gpt_buf_free(&tensor);
    return status;
}

/* Appends a summary of one text. The sizes of what is inside come first, so
 * that it is put together from the inside out. */
static int add_text_summary(struct gpt_buf *b, const char *tag,
                            const char *text)
{
    struct gpt_buf value = {0}, summary = {0};
    int status;

    GPT_TRY_GOTO(status, add_text_value(&value, tag, text), out);
    GPT_TRY_GOTO(status, add_message(&summary, 1, &value), out);
    status = add_message(b, 5, &summary);
out:
    gpt_buf_free(&value);
    gpt_buf_free(&summary);
    return status;
}

/* ---- records ---- */

/* The checksum of TFRecord, whose constant this is. */
static uint32_t masked_checksum(const void *p, size_t n)
{
    const uint32_t crc = gpt_crc32c(0, p, n);

    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

/* Checksum and event are put together first: a reader that sees a length
 * without its event stops at it, and takes the rest when it is there. */
static int write_record(struct gpt_event_file *f, struct gpt_err *err)
{
    uint8_t head[12], tail[4];

    gpt_put_u64(head, f->event.len);
    gpt_put_u32(head + 8, masked_checksum(head, 8));
    gpt_put_u32(tail, masked_checksum(f->event.data, f->event.len));
    f->record.len = 0;
    if (gpt_buf_add(&f->record, head, sizeof(head)) != GPT_OK ||
        gpt_buf_add(&f->record, f->event.data, f->event.len) != GPT_OK ||
        gpt_buf_add(&f->record, tail, sizeof(tail)) != GPT_OK)
        return gpt_no_memory(err, "an event");
    return gpt_append_bytes(f->log, f->record.data, f->record.len, err);
}

/* The first event of a file says of which version it is. */
static int write_version(struct gpt_event_file *f, struct gpt_err *err)
{
    f->event.len = 0;
    if (add_double(&f->event, 1, (double)time(NULL)) != GPT_OK ||
        add_string(&f->event, 3, "brain.Event:2") != GPT_OK)
        return gpt_no_memory(err, "an event");
    return write_record(f, err);
}

/* Writes the time and the step, with which each event begins. */
static int begin_event(struct gpt_event_file *f, double when, int64_t step)
{
    f->event.len = 0;
    GPT_TRY(add_double(&f->event, 1, when));
    GPT_TRY(add_key(&f->event, 2, VARINT));
    return add_varint(&f->event, (uint64_t)step);
}

int gpt_event_file_scalar(struct gpt_event_file *f, double when, int64_t step,
                          const char *tag, double value, struct gpt_err *err)
{
    if (begin_event(f, when, step) != GPT_OK ||
        add_summary(&f->event, tag, (float)value) != GPT_OK)
        return gpt_no_memory(err, "an event");
    return write_record(f, err);
}

int gpt_event_file_text(struct gpt_event_file *f, double when, int64_t step,
                        const char *tag, const char *text, struct gpt_err *err)
{
    if (begin_event(f, when, step) != GPT_OK ||
        add_text_summary(&f->event, tag, text) != GPT_OK)
        return gpt_no_memory(err, "an event");
    return write_record(f, err);
}

/* ---- files ---- */

/* A failure leaves the file, as TensorBoard skips one without values. */
int gpt_event_file_open(struct gpt_event_file **file, const char *dir,
                        struct gpt_err *err)
{
    struct gpt_event_file *f = NULL;
    char name[GPT_JOINED_BYTES], path[GPT_JOINED_BYTES], host[256] = "host";
    int status;

    *file = NULL;
    gethostname(host, sizeof(host) - 1);
    /* the last number would tell two files of one second apart */
    snprintf(name, sizeof(name), "events.out.tfevents.%lld.%s.%lld.0",
             (long long)time(NULL), host, (long long)getpid());
    GPT_TRY(gpt_path_mkdirs(dir, err));
    GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
    GPT_TRY(gpt_new(&f, 1, sizeof(*f), "an event file", err));
    GPT_TRY_GOTO(status, gpt_append_open(&f->log, path, err), fail);
    GPT_TRY_GOTO(status, write_version(f, err), fail);
    *file = f;
    return GPT_OK;
fail:
    gpt_append_drop(f->log);
    gpt_free(f);
    return status;
}

int gpt_event_file_close(struct gpt_event_file *f, struct gpt_err *err)
{
    if (!f)
        return GPT_OK;
    const int status = gpt_append_close(f->log, err);

    gpt_buf_free(&f->event);
    gpt_buf_free(&f->record);
    gpt_free(f);
    return status;
}

/* ---- names ---- */

/* The tags under which Megatron-LM's training_log() and
 * evaluate_and_print_results() write these fields. The x axis is the iteration;
 * what Megatron-LM also writes against samples is left out. */
static const struct {
    const char *field, *tag;
    double factor;
} tags[] = {
    {"lm_loss", "lm loss", 1},
    {"load_balancing_loss", "load_balancing_loss", 1},
    {"z_loss", "z_loss", 1},
    {"learning_rate", "learning-rate", 1},
    {"decoupled_learning_rate", "decoupled-learning-rate", 1},
    {"global_batch_size", "batch-size", 1},
    {"loss_scale", "loss-scale", 1},
    {"grad_norm", "grad-norm", 1},
    {"elapsed_ms", "iteration-time", 1e-3},
    {"validation_loss", "lm loss validation", 1},
    {"validation_ppl", "lm loss validation ppl", 1},
    {"validation_bits_per_byte", "lm loss validation bits per byte", 1},
    {"test_bits_per_byte", "lm loss test bits per byte", 1},
    {"test_loss", "lm loss test", 1},
    {"test_ppl", "lm loss test ppl", 1},
};

/* Endings of fields of one of several validation sets, "validation-NAME_loss":
 * Megatron-LM puts a number in the place of the name. */
static const struct {
    const char *ending, *tail;
} set_fields[] = {
    {"_loss", ""},
    {"_ppl", " ppl"},
    {"_bits_per_byte", " bits per byte"},
};

/* The tag of a field of one validation set, in `buf`; NULL for another
 * field. */
static const char *tag_of_set(const char *field, char *buf, size_t cap)
{
    static const char before[] = "validation-";
    const size_t len = strlen(field);

    if (strncmp(field, before, strlen(before)) != 0)
        return NULL;
    for (size_t i = 0; i < GPT_COUNT(set_fields); i++) {
        const size_t n = strlen(set_fields[i].ending);

        if (len <= n || strcmp(field + len - n, set_fields[i].ending) != 0)
            continue;
        snprintf(buf, cap, "lm loss %.*s%s", (int)(len - n), field,
                 set_fields[i].tail);
        return buf;
    }
    return NULL;
}

const char *gpt_event_tag(const char *field, char *buf, size_t cap,
                          double *factor)
{
    const char *of_set = tag_of_set(field, buf, cap);

    *factor = 1;
    for (size_t i = 0; i < GPT_COUNT(tags); i++)
        if (strcmp(tags[i].field, field) == 0) {
            *factor = tags[i].factor;
            return tags[i].tag;
        }
    return of_set ? of_set : field;
}
