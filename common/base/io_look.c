/* Looking at the bytes of an input where the kernel keeps them: no copy is made
 * of what is only passed on. Start at gpt_in_look_begin().
 *
 * A page that has gone (another process cut the file, the disk fails) ends in
 * SIGBUS where a read would have returned an error. The handler puts a page of
 * zeros there and notes that, which gpt_in_look_check() reports afterwards; for
 * files whose numbers lead further, such as an index, it ends the process with
 * a message that was made beforehand. The handler runs in the thread that
 * looked, at any moment of the others, so the list of mappings only grows;
 * entries of files that were closed are used again. */
#include "base/io_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

struct gpt_look {
    struct gpt_look *next;
    _Atomic(uint8_t *) data; /* NULL: free */
    atomic_size_t size;
    atomic_bool lost;
    _Atomic(char *) words; /* to end with; NULL: use zeros */
};

static _Atomic(struct gpt_look *) looks;
static atomic_size_t n_free; /* of them; not more than there are */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before; /* what had been set for the signal */
static size_t page;

static struct gpt_look *find_look(const uint8_t *at)
{
    for (struct gpt_look *l = atomic_load(&looks); l; l = l->next) {
        const uint8_t *data = atomic_load(&l->data);
        const size_t size = atomic_load(&l->size);

        /* not of a file that has taken the entry in between */
        if (data && data == atomic_load(&l->data) && at >= data &&
            (size_t)(at - data) < size)
            return l;
    }
    return NULL;
}

/* One that a process has sent has no address, and no instruction repeats it: it
 * is raised again, and waits until the handler has returned. */
static void pass_on(int sig)
{
    if (before.sa_handler == SIG_IGN)
        return;
    sigaction(sig, &before, NULL);
    raise(sig);
}

/* For any other address the old action comes back, and the instruction meets
 * it when it is repeated. */
static void on_bus(int sig, siginfo_t *info, void *context)
{
    uint8_t *at = info->si_addr;

    (void)context;
    if (info->si_code <= 0) {
        pass_on(sig);
        return;
    }
    struct gpt_look *l = find_look(at);
    char *words = l ? atomic_load(&l->words) : NULL;
    if (words) {
        gpt_log_stamp(words);
        gpt_signals_end(words, GPT_EIO);
    }
    if (l && mmap(at - (uintptr_t)at % page, page, PROT_READ,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
        atomic_store(&l->lost, true);
    else
        sigaction(sig, &before, NULL);
}

/* Takes a free entry, or adds one. Its address is set last, as the handler sees
 * the entry from then on. */
static struct gpt_look *add_look(uint8_t *data, size_t size)
{
    struct gpt_look *l = NULL;

    /* not looked for among thousands of files that are all open */
    if (atomic_load(&n_free) > 0) {
        atomic_fetch_sub(&n_free, 1);
        l = atomic_load(&looks);
    }
    while (l && atomic_load(&l->data))
        l = l->next;
    if (!l) {
        if (gpt_new(&l, 1, sizeof(*l), "a file", NULL) != GPT_OK)
            return NULL;
        l->next = atomic_load(&looks);
        atomic_store(&looks, l);
    }
    atomic_store(&l->lost, false);
    atomic_store(&l->words, NULL);
    atomic_store(&l->size, size);
    atomic_store(&l->data, data);
    return l;
}

/* True for local file systems, whose pages are those that a read copies from.
 * Over a network a page may be old, and a server that is away stops the process
 * where no signal wakes it. Overlay is left out, as it does not tell what lies
 * below it. */
static bool is_local(int fd)
{
    static const uint32_t kinds[] = {GPT_FS_TMPFS, GPT_FS_EXT, GPT_FS_XFS,
                                     GPT_FS_BTRFS};

    return gpt_raw_is_in(fd, kinds, GPT_COUNT(kinds));
}

static void install(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO};

    action.sa_sigaction = on_bus;
    sigfillset(&action.sa_mask);
    page = (size_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, &action, &before);
}

struct gpt_look *gpt_look_at(uint8_t *data, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, install);
    pthread_mutex_lock(&mutex);
    struct gpt_look *l = add_look(data, size);
    pthread_mutex_unlock(&mutex);
    return l;
}

struct gpt_look *gpt_look_open(int fd, int64_t size)
{
    if (size == 0 || !is_local(fd))
        return NULL;
    uint8_t *data = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return NULL;
    struct gpt_look *l = gpt_look_at(data, (size_t)size);
    if (!l)
        munmap(data, (size_t)size);
    return l;
}

void gpt_look_close(struct gpt_look *l)
{
    if (!l)
        return;
    uint8_t *data = atomic_load(&l->data);
    const size_t size = atomic_load(&l->size);
    atomic_store(&l->data, NULL);
    atomic_fetch_add(&n_free, 1);
    munmap(data, size);
}

const uint8_t *gpt_look_data(const struct gpt_look *l)
{
    return atomic_load(&l->data);
}

void gpt_look_end_with(struct gpt_look *l, char *words)
{
    atomic_store(&l->words, words);
}

bool gpt_look_lost(const struct gpt_look *l)
{
    return atomic_load(&l->lost);
}

/* Whole blocks are dropped, once for every few tiles: a call for each tile
 * costs as much as it frees where pages are small, and would break up large
 * ones. The block before the end stays, as slower threads still read there;
 * those before the stretch are dropped once more, as such threads may have
 * brought them back. */
void gpt_look_pass(const struct gpt_look *l, int64_t offset, int64_t n)
{
    enum { BLOCK = 2 << 20, BEHIND = 6 * BLOCK };
    const int64_t end = (offset + n) / BLOCK * BLOCK - BLOCK;
    const int64_t begin = gpt_max_i64(gpt_min_i64(offset, end) - BEHIND, 0);

    if (end + BLOCK > offset && end > 0)
        gpt_look_drop(l, begin, end - begin);
}

/* Pages that a neighbour still looks at come back when it does. */
void gpt_look_drop(const struct gpt_look *l, int64_t offset, int64_t n)
{
    const int64_t size = (int64_t)page, begin = offset - offset % size;

    madvise(atomic_load(&l->data) + begin, (size_t)(offset + n - begin),
            MADV_DONTNEED);
}
