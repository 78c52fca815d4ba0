/* Adding products as elements are read; see merge.h. Start at gpt_merge_read():
 * the bytes of the file are read into the destination, cut into rectangles of
 * the matrix, and each rectangle into blocks whose sums are made at once.
 *
 * The factor that runs along a line is kept as a panel of doubles, for as many
 * positions as fit. Tiles that follow each other have the same positions, so a
 * panel is read once for many of them, and the cost is that of the sums. */
#include "checkpoint/merge.h"

#include "base/cpu.h"
#include "base/num.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum {
    LANES = 32,      /* positions whose sums are in registers */
    BLOCK = 1024,    /* positions, and */
    LINES = 16,      /* lines of a block */
    PANEL = 1 << 16, /* doubles of a panel; more for a rank above 2048 */
    LEFTS = 1 << 14, /* doubles of a block's lines */
    NORM_BYTES = 1 << 20, /* of a matrix, read at once for lengths */
};

struct gpt_merge_room {
    const struct gpt_merge *of; /* whose panel it is, and of which positions */
    int64_t from;
    double *panel, *lefts;
    int64_t rank; /* that there is room for */
    float sums[LINES * BLOCK], base[BLOCK];
};

_Static_assert((GPT_MERGE_RANK * LANES + LEFTS + LANES) * 8 +
                       (LINES + 1) * BLOCK * 4 + 256 <=
                   GPT_MERGE_SCRATCH,
               "see merge.h");

/* ---- products ---- */

void gpt_product_free(struct gpt_product *p)
{
    gpt_tensor_free(&p->left);
    gpt_tensor_free(&p->right);
    gpt_tensor_free(&p->left_turned);
    gpt_tensor_free(&p->right_turned);
    gpt_tensor_free(&p->lengths);
    gpt_tensor_free(&p->base);
    gpt_free(p->factors);
}

int gpt_tensor_turn(struct gpt_tensor *to, const struct gpt_tensor *from,
                    struct gpt_err *err)
{
    const int64_t shape[2] = {from->shape[1], from->shape[0]};
    const struct gpt_map m = {.perm = {1, 0, 2, 3},
                              .shape = {shape[0], shape[1]}};

    *to = gpt_tensor_make(from->name, from->dtype, 2, shape);
    return gpt_tensor_view(to, from, &m, 1, err);
}

int gpt_product_make(struct gpt_product *p, const struct gpt_tensor *w,
                     struct gpt_err *err)
{
    pthread_mutex_init(&p->lock, NULL);
    GPT_TRY(gpt_tensor_turn(&p->left_turned, &p->left, err));
    if (p->right.n)
        GPT_TRY(gpt_tensor_turn(&p->right_turned, &p->right, err));
    p->base = gpt_tensor_make(w->name, w->dtype, w->ndim, w->shape);
    p->rows_end = 0;
    p->rows = w->shape[0];
    for (size_t i = 0; p->lengths.n && i < w->n; i++) {
        const struct gpt_file_box *b = &w->pieces[i];

        p->rows = gpt_min_i64(p->rows, b->begin[0]);
        p->rows_end = gpt_max_i64(p->rows_end, b->begin[0] + b->shape[0]);
        GPT_TRY(gpt_tensor_add(&p->base, b, err));
    }
    return GPT_OK;
}

static int64_t rank_of(const struct gpt_product *p)
{
    return p->left.shape[1];
}

/* ---- sums ---- */

typedef double eight __attribute__((vector_size(64)));
typedef float eight_floats __attribute__((vector_size(32)));

/* n sums over the rank: to[j] = left[0] panel[0][j] + left[1] panel[1][j] + ...
 * Lanes past n hold anything. */
#define SUM(isa, target)                                                       \
    target static void sum_##isa(float *to, const double *left,               \
                                 const double *panel, int64_t width,          \
                                 int64_t rank, int64_t n)                     \
    {                                                                          \
        for (int64_t j = 0; j < n; j += LANES) {                               \
            eight s[LANES / 8] = {{0}}, v;                                     \
                                                                               \
            for (int64_t k = 0; k < rank; k++)                                 \
                for (int i = 0; i < LANES / 8; i++) {                          \
                    memcpy(&v, panel + k * width + j + 8 * i, sizeof(v));      \
                    s[i] += left[k] * v;                                       \
                }                                                              \
            for (int i = 0; i < LANES / 8; i++) {                              \
                const eight_floats f =                                         \
                    __builtin_convertvector(s[i], eight_floats);               \
                memcpy(to + j + 8 * i, &f, sizeof(f));                         \
            }                                                                  \
        }                                                                      \
    }

typedef void sum_function(float *to, const double *left, const double *panel,
                          int64_t width, int64_t rank, int64_t n);

#if defined(__x86_64__) && defined(GPT_HAVE_ISA_avx512)
SUM(base, )
SUM(avx2, __attribute__((target("avx2"))))
SUM(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))))
static sum_function *const sums[] = {sum_base, sum_avx2, sum_avx512};
#else
SUM(base, )
static sum_function *const sums[] = {sum_base, sum_base, sum_base};
#endif

static sum_function *best_sum = sums[0];

static void find_best(void)
{
    static const char *const sets[] = {"base", "avx2", "avx512"};

    for (size_t i = 0; i < GPT_COUNT(sets); i++)
        if (strcmp(gpt_cpu_isa(), sets[i]) == 0)
            best_sum = sums[i];
}

/* ---- memory of a thread ---- */

void gpt_merge_room_free(struct gpt_merge_room *room)
{
    if (room) {
        gpt_free(room->panel);
        gpt_free(room->lefts);
    }
    gpt_free(room);
}

static int64_t panel_width(int64_t rank)
{
    return gpt_max_i64(LANES, PANEL / rank / LANES * LANES);
}

/* Lanes behind the last line of a panel are read, too. */
static int make_room(struct gpt_merge_room **room, int64_t rank,
                     struct gpt_err *err)
{
    const int64_t width = panel_width(rank);

    if (!*room)
        GPT_TRY(gpt_new(room, 1, sizeof(**room), "merging", err));
    if (rank <= (*room)->rank)
        return GPT_OK;
    gpt_free((*room)->panel);
    gpt_free((*room)->lefts);
    (*room)->panel = (*room)->lefts = NULL;
    (*room)->rank = 0;
    (*room)->of = NULL;
    GPT_TRY(gpt_new(&(*room)->panel,
                    (size_t)gpt_max_i64(PANEL, width * rank) + LANES,
                    sizeof(double), "merging", err));
    GPT_TRY(gpt_new(&(*room)->lefts, LEFTS, sizeof(double), "merging", err));
    (*room)->rank = rank;
    return GPT_OK;
}

/* Positions [from, from + n) of the factor that runs along lines. */
static int load_panel(const struct gpt_merge *m, struct gpt_merge_room *room,
                      int64_t from, struct gpt_err *err)
{
    const struct gpt_product *p = m->product;
    const struct gpt_tensor *along = m->columns ? &p->left_turned : &p->right;
    const int64_t rank = rank_of(p), width = panel_width(rank);
    const int64_t n = gpt_min_i64(width, m->at + m->n - from);
    const int64_t begin[GPT_TENSOR_DIMS] = {0, from};

    if (room->of == m && room->from == from)
        return GPT_OK;
    room->of = NULL;
    for (int64_t i = 0; along->n == 0 && i < n; i++)
        room->panel[i] = 1; /* of one line */
    /* tight at first, then spread from the last line on */
    const int64_t shape[GPT_TENSOR_DIMS] = {rank, n};
    if (along->n)
        GPT_TRY(gpt_tensor_gather(along, begin, shape, GPT_F64, room->panel,
                                  err));
    for (int64_t k = rank - 1; n < width && k > 0; k--)
        memmove(room->panel + k * width, room->panel + k * n,
                (size_t)n * sizeof(double));
    room->of = m;
    room->from = from;
    return GPT_OK;
}

/* The other factor, of lines [line, line + n). */
static int load_lefts(const struct gpt_merge *m, struct gpt_merge_room *room,
                      int64_t line, int64_t n, struct gpt_err *err)
{
    const struct gpt_product *p = m->product;
    const struct gpt_tensor *across = m->columns ? &p->right_turned : &p->left;
    const int64_t begin[GPT_TENSOR_DIMS] = {line};
    const int64_t shape[GPT_TENSOR_DIMS] = {n, rank_of(p)};

    for (int64_t i = 0; across->n == 0 && i < n; i++)
        room->lefts[i] = 1;
    return across->n ? gpt_tensor_gather(across, begin, shape, GPT_F64,
                                         room->lefts, err)
                     : GPT_OK;
}

/* ---- blocks ---- */

/* Largest float whose rounding to the type is finite. */
static float largest(enum gpt_dtype type)
{
    return type == GPT_F16    ? 65519.996F
           : type == GPT_BF16 ? 3.3961775e38F
                              : FLT_MAX;
}

static int fail_of_sum(const struct gpt_merge *m, double base, double sum,
                       int64_t line, int64_t at, struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA,
                    "%s: element %lld, %lld of the model's %s is %g, and with "
                    "the adapter %g, which %s does not hold",
                    m->product->what, (long long)(m->columns ? at : line),
                    (long long)(m->columns ? line : at),
                    m->product->base.name, base, sum,
                    gpt_dtype_name(m->kept));
}

/* What one output is multiplied by; 1 without lengths. */
static float factor_of(const struct gpt_merge *m, const float *factors,
                       int64_t line, int64_t at)
{
    return !factors ? 1
                    : factors[m->product->out_rows != m->columns ? line : at];
}

/* The sums of a line become merged elements. That all are finite is found
 * without a branch; which one is not, afterwards. */
static int add_line(const struct gpt_merge *m, const float *factors,
                    const float *base, float *sum, float scale, int64_t line,
                    int64_t at, int64_t n, struct gpt_err *err)
{
    const float most = largest(m->kept);
    int beyond = 0;

    for (int64_t j = 0; j < n; j++)
        sum[j] = base[j] + sum[j] * scale;
    for (int64_t j = 0; factors && j < n; j++)
        sum[j] *= factor_of(m, factors, line, at + j);
    for (int64_t j = 0; j < n; j++)
        beyond |= !(fabsf(sum[j]) <= most); /* a NaN compares false */
    /* what the file has itself is left alone */
    for (int64_t j = 0; beyond && j < n; j++)
        if (!(fabsf(sum[j]) <= most) && isfinite(base[j]))
            return fail_of_sum(m, (double)base[j], (double)sum[j], line, at + j,
                               err);
    return GPT_OK;
}

/* A matrix of doubles: the sum is of double then. */
static void add_doubles(const struct gpt_merge *m, const float *factors,
                        double *x, const float *sum, int64_t line, int64_t at,
                        int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        const float scaled = sum[j] * m->product->scale;

        x[j] = (x[j] + (double)scaled) *
               (double)factor_of(m, factors, line, at + j);
    }
}

/* Rounds n <= BLOCK floats to a type of two bytes. */
static void round_floats(float *x, enum gpt_dtype type, int64_t n)
{
    uint16_t rounded[BLOCK];

    if (gpt_dtype_bytes(type) != 2)
        return;
    (void)!gpt_convert(rounded, type, x, GPT_F32, (size_t)n);
    (void)!gpt_convert(x, GPT_F32, rounded, type, (size_t)n);
}

/* Scales sums and rounds them to the type of the matrix. */
static void round_sums(const struct gpt_merge *m, float *sum, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        sum[j] *= m->product->scale;
    round_floats(sum, m->kept, n);
}

/* Elements [at, at + n) of a line, n <= BLOCK, which are at `dst`. */
static int finish_line(const struct gpt_merge *m, struct gpt_merge_room *room,
                       const float *factors, uint8_t *dst, float *sum,
                       int64_t line, int64_t at, int64_t n, struct gpt_err *err)
{
    const bool narrow = gpt_dtype_bytes(m->kept) == 2;
    const bool rounds = m->product->rounds && narrow;

    if (m->dtype == GPT_F64) {
        add_doubles(m, factors, (double *)(void *)dst, sum, line, at, n);
        return GPT_OK;
    }
    if (!gpt_convert(room->base, GPT_F32, dst, m->dtype, (size_t)n))
        return gpt_fail(err, GPT_EDATA, "%s: cannot be added to elements of "
                        "type %s", m->product->what,
                        gpt_dtype_name(m->dtype));
    if (rounds)
        round_sums(m, sum, n);
    GPT_TRY(add_line(m, factors, room->base, sum,
                     rounds ? 1 : m->product->scale, line, at, n, err));
    if (narrow && m->dtype != m->kept)
        round_floats(sum, m->kept, n);
    (void)!gpt_convert(dst, m->dtype, sum, GPT_F32, (size_t)n);
    return GPT_OK;
}

/* A block of lines, all of whose positions are in the panel. */
static int add_block(const struct gpt_merge *m, struct gpt_merge_room *room,
                     const float *factors, uint8_t *dst, int64_t line,
                     int64_t lines, int64_t at, int64_t n, struct gpt_err *err)
{
    const int64_t rank = rank_of(m->product), width = panel_width(rank);

    for (int64_t i = 0; i < lines; i++)
        best_sum(room->sums + i * BLOCK, room->lefts + i * rank,
                 room->panel + (at - room->from), width, rank, n);
    for (int64_t i = 0; i < lines; i++)
        GPT_TRY(finish_line(m, room, factors, dst + i * m->pitch,
                            room->sums + i * BLOCK, line + i, at, n, err));
    return GPT_OK;
}

/* Lines [line, line + lines), of each the elements [at, at + n), by their
 * numbers in the matrix; the first of them is at `dst`. */
static int add_rectangle(const struct gpt_merge *m,
                         struct gpt_merge_room *room, const float *factors,
                         uint8_t *dst, int64_t line, int64_t lines, int64_t at,
                         int64_t n, struct gpt_err *err)
{
    const int64_t rank = rank_of(m->product), width = panel_width(rank);
    const int64_t size = (int64_t)gpt_dtype_bytes(m->dtype);
    const int64_t most = gpt_max_i64(1, gpt_min_i64(LINES, LEFTS / rank));
    const int64_t end = at + n;

    for (int64_t x = at, panel_end; x < end; x = panel_end) {
        const int64_t from = m->at + (x - m->at) / width * width;

        panel_end = gpt_min_i64(end, from + width);
        GPT_TRY(load_panel(m, room, from, err));
        for (int64_t i = 0; i < lines; i += most) {
            const int64_t k = gpt_min_i64(most, lines - i);

            GPT_TRY(load_lefts(m, room, line + i, k, err));
            for (int64_t j = x; j < panel_end; j += BLOCK)
                GPT_TRY(add_block(m, room, factors,
                                  dst + i * m->pitch + (j - at) * size,
                                  line + i, k, j,
                                  gpt_min_i64(BLOCK, panel_end - j), err));
        }
    }
    return GPT_OK;
}

/* ---- lengths ---- */

/* Adds the squares of rows [row, row + rows) of the sum, which are at `x`, to
 * those of their outputs. */
static void add_squares(const struct gpt_product *p, double *squares,
                        const float *x, int64_t row, int64_t rows,
                        int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const double v = (double)x[i * columns + j];

            squares[p->out_rows ? row + i : j] += v * v;
        }
}

/* Reads the matrix once: sums are of floats and are not rounded to its type. */
static int sum_squares(struct gpt_product *p, double *squares, float *x,
                       struct gpt_err *err)
{
    const int64_t rows = p->rows_end, columns = p->base.shape[1];
    const int64_t step =
        gpt_max_i64(1, NORM_BYTES / (int64_t)sizeof(*x) / columns);
    const struct gpt_merge plain = {
        .product = p, .dtype = GPT_F32, .kept = GPT_F32, .lines = rows, .n = columns,
        .pitch = columns * (int64_t)sizeof(*x)};
    struct gpt_merge_room *room = NULL;
    int status = make_room(&room, rank_of(p), err);

    for (int64_t i = p->rows; status == GPT_OK && i < rows; i += step) {
        const int64_t begin[GPT_TENSOR_DIMS] = {i};
        const int64_t box[GPT_TENSOR_DIMS] = {gpt_min_i64(step, rows - i),
                                              columns};

        status = gpt_tensor_gather(&p->base, begin, box, GPT_F32, x, err);
        if (status == GPT_OK)
            status = add_rectangle(&plain, room, NULL, (uint8_t *)x, i, box[0],
                                   0, columns, err);
        add_squares(p, squares, x, i, box[0], columns);
    }
    gpt_merge_room_free(room);
    return status;
}

static int make_factors(struct gpt_product *p, struct gpt_err *err)
{
    const int64_t n = p->lengths.shape[0], columns = p->base.shape[1];
    const int64_t begin[GPT_TENSOR_DIMS] = {0};
    const int64_t room =
        gpt_max_i64(NORM_BYTES / (int64_t)sizeof(float), columns);
    float *factors, *x = NULL;
    double *squares = NULL;
    int status;

    GPT_TRY(gpt_new(&factors, (size_t)n, sizeof(*factors), "lengths", err));
    GPT_TRY_GOTO(status, gpt_new(&squares, (size_t)n, sizeof(*squares),
                                 "lengths", err), out);
    GPT_TRY_GOTO(status, gpt_new(&x, (size_t)room, sizeof(*x), "lengths", err),
                 out);
    GPT_TRY_GOTO(status, gpt_tensor_gather(&p->lengths, begin,
                                           p->lengths.shape, GPT_F32, factors,
                                           err), out);
    GPT_TRY_GOTO(status, sum_squares(p, squares, x, err), out);
    for (int64_t i = 0; i < n; i++)
        factors[i] /= (float)sqrt(squares[i]);
    p->factors = factors;
    factors = NULL;
out:
    gpt_free(factors);
    gpt_free(squares);
    gpt_free(x);
    return status;
}

/* Threads that come while another one reads the matrix wait for it. */
static int find_factors(struct gpt_product *p, const float **factors,
                        struct gpt_err *err)
{
    int status = GPT_OK;

    *factors = NULL;
    if (p->lengths.n == 0)
        return GPT_OK;
    pthread_mutex_lock(&p->lock);
    if (!p->factors)
        status = make_factors(p, err);
    *factors = p->factors;
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* ---- reading ---- */

static int read_base(const struct gpt_merge *m, struct gpt_in *in, void *dst,
                     int64_t offset, size_t bytes,
                     struct gpt_merge_room **room, struct gpt_err *err)
{
    if (m->under)
        return gpt_merge_read(m->under, in, dst, offset, bytes, room, err);
    return m->packed ? gpt_packed_read(m->packed, in, dst, offset, bytes, err)
                     : gpt_in_read(in, dst, offset, bytes, err);
}

/* Whole lines are taken together; what comes before the first and after the
 * last whole one is a rectangle of one line. Between lines there may be bytes
 * that are none of the matrix: they stay as they are. */
int gpt_merge_read(const struct gpt_merge *m, struct gpt_in *in, void *dst,
                   int64_t offset, size_t bytes, struct gpt_merge_room **room,
                   struct gpt_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int64_t size = (int64_t)gpt_dtype_bytes(m->dtype);
    const int64_t line = m->pitch / size; /* elements */
    const float *factors;
    uint8_t *to = dst;

    assert(offset >= m->begin && (offset - m->begin) % size == 0);
    pthread_once(&once, find_best);
    GPT_TRY(read_base(m, in, dst, offset, bytes, room, err));
    for (int64_t i = 0, n = (int64_t)bytes / size; !m->product && i < n;
         i += BLOCK)
        round_floats((float *)dst + i, m->kept, gpt_min_i64(BLOCK, n - i));
    if (!m->product)
        return GPT_OK;
    GPT_TRY(make_room(room, rank_of(m->product), err));
    GPT_TRY(find_factors(m->product, &factors, err));
    for (int64_t i = (offset - m->begin) / size, n = (int64_t)bytes / size,
                 taken; n > 0; i += taken, n -= taken, to += taken * size) {
        const int64_t at = i % line;
        const int64_t whole = at == 0 ? n / line : 0;
        const int64_t lines = gpt_min_i64(gpt_max_i64(whole, 1),
                                          m->lines - i / line);
        const int64_t count =
            gpt_min_i64(m->n - at, whole ? line : gpt_min_i64(n, line - at));

        taken = whole ? whole * line : gpt_min_i64(n, line - at);
        if (lines > 0 && count > 0)
            GPT_TRY(add_rectangle(m, *room, factors, to, m->line + i / line,
                                  lines, m->at + at, count, err));
    }
    return GPT_OK;
}

/* ---- pieces ---- */

/* A piece as lines: false when neither its rows nor its columns are. */
static bool line_up(struct gpt_merge *m, const struct gpt_file_box *b, int ndim)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(b->dtype);
    const int64_t columns = ndim > 1 ? b->shape[1] : 1;
    const int64_t across = ndim > 1 && columns > 1 ? b->stride[1] : size;
    const int64_t rows = b->shape[0], down = rows > 1 ? b->stride[0] : size;

    /* a vector is one line, and so is a matrix of one column */
    m->columns = columns == 1 || across != size;
    m->line = m->columns ? (ndim > 1 ? b->begin[1] : 0) : b->begin[0];
    m->lines = m->columns ? columns : rows;
    m->at = m->columns ? b->begin[0] : ndim > 1 ? b->begin[1] : 0;
    m->n = m->columns ? rows : columns;
    m->pitch = m->columns ? across : down;
    if (m->lines == 1)
        m->pitch = gpt_max_i64(ndim > 1 ? b->stride[!!m->columns] : size,
                               m->n * size);
    m->begin = b->offset;
    m->end = b->offset + (m->lines - 1) * m->pitch + m->n * size;
    return (m->columns ? down : across) == size && m->pitch % size == 0 &&
           m->pitch >= m->n * size && b->offset >= 0;
}

/* Lets *m, the stretch of earlier pieces, hold the next one, too, where both
 * are of one order in one file. */
static bool extend(struct gpt_merge *m, const struct gpt_merge *next)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(m->dtype);
    const int64_t line = gpt_min_i64(m->line, next->line);
    const int64_t at = gpt_min_i64(m->at, next->at);
    const int64_t line_end =
        gpt_max_i64(m->line + m->lines, next->line + next->lines);
    const int64_t end = gpt_max_i64(m->at + m->n, next->at + next->n);
    int64_t apart, begin;

    if (m->dtype != next->dtype || m->kept != next->kept ||
        m->packed != next->packed ||
        m->under != next->under || m->columns != next->columns ||
        m->pitch != next->pitch || (end - at) * size > m->pitch ||
        !gpt_mul(next->line - m->line, m->pitch, &apart) ||
        next->begin - m->begin != apart + (next->at - m->at) * size ||
        !gpt_mul(m->line - line, m->pitch, &begin))
        return false;
    m->begin -= begin + (m->at - at) * size;
    m->line = line;
    m->at = at;
    m->lines = line_end - line;
    m->n = end - at;
    m->end = gpt_max_i64(m->end, next->end);
    return true;
}

/* Pieces that follow each other mostly lie in one stretch: one of them is then
 * made for all, so that what was read for one piece serves the next. type: of
 * the model's elements; GPT_N_DTYPES: as each piece has it. */
static int wrap_pieces(struct gpt_tensor *w, struct gpt_product *p,
                       enum gpt_dtype type, struct gpt_arena *arena,
                       struct gpt_err *err)
{
    struct gpt_merge *last = NULL;
    const struct gpt_in *in = NULL;

    for (size_t i = 0; i < w->n; i++) {
        struct gpt_file_box *b = &w->pieces[i];
        struct gpt_merge m = {.product = p, .dtype = b->dtype,
                              .kept = type != GPT_N_DTYPES ? type
                                      : b->merge           ? b->merge->kept
                                                           : b->dtype,
                              .packed = b->packed, .under = b->merge};

        if (!b->in || !line_up(&m, b, w->ndim))
            return gpt_fail(err, GPT_EDATA,
                            "%s: the elements of %s lie in an order to which "
                            "nothing can be added", p ? p->what : "adapter",
                            w->name);
        if (m.under)
            m.packed = NULL; /* it has it */
        if (!last || in != b->in || !extend(last, &m)) {
            last = gpt_arena_alloc(arena, 1, sizeof(*last));
            if (!last)
                return gpt_no_memory(err, "merging");
            *last = m;
        }
        in = b->in;
        b->merge = last;
        b->packed = NULL;
    }
    return GPT_OK;
}

int gpt_merge_pieces(struct gpt_tensor *w, struct gpt_product *p,
                     struct gpt_arena *arena, struct gpt_err *err)
{
    return wrap_pieces(w, p, GPT_N_DTYPES, arena, err);
}

/* ---- rounding ---- */

static void unpack_f16(float *to, const uint8_t *block)
{
    *to = gpt_f16_to_f32(gpt_get_u16(block));
}

static void unpack_bf16(float *to, const uint8_t *block)
{
    *to = gpt_bf16_to_f32(gpt_get_u16(block));
}

/* Blocks of one element: a stretch of them is one of floats. */
static const struct gpt_packing f16_as_floats = {
    .name = "F16", .elements = 1, .bytes = 2, .unpack = unpack_f16};
static const struct gpt_packing bf16_as_floats = {
    .name = "BF16", .elements = 1, .bytes = 2, .unpack = unpack_bf16};

/* A piece of two bytes an element, as one of floats. */
static int widen(struct gpt_file_box *b, int ndim, struct gpt_arena *arena,
                 struct gpt_err *err)
{
    struct gpt_packed *k = gpt_arena_alloc(arena, 1, sizeof(*k));
    int64_t elements = 1;

    if (!k)
        return gpt_no_memory(err, "merging");
    for (int d = 0; d < ndim; d++) {
        elements += (b->shape[d] - 1) * (b->stride[d] / 2);
        b->stride[d] *= 2;
    }
    *k = (struct gpt_packed){
        b->dtype == GPT_F16 ? &f16_as_floats : &bf16_as_floats, b->offset,
        elements};
    b->offset = 0;
    b->dtype = GPT_F32;
    b->packed = k;
    return GPT_OK;
}

/* Doubles stay what they are. */
int gpt_merge_round(struct gpt_tensor *w, enum gpt_dtype type,
                    struct gpt_arena *arena, struct gpt_err *err)
{
    for (size_t i = 0; i < w->n; i++) {
        struct gpt_file_box *b = &w->pieces[i];

        if (b->dtype == type || b->dtype == GPT_F64 || type == GPT_F64 ||
            b->merge || b->packed)
            return GPT_OK;
        if (b->dtype != GPT_F32)
            GPT_TRY(widen(b, w->ndim, arena, err));
    }
    return wrap_pieces(w, NULL, type, arena, err);
}
