/* Messages through Gloo. Its collectives are not used: comm_host.c makes them
 * of messages, so that the order of sums is known and a member that does not
 * answer can be named. No exception leaves this file. Start at
 * gpt_gloo_exchange(). */
extern "C" {
#include "base/clock.h"
#include "base/memory.h"
#include "base/signals.h"
#include "base/thread.h"
#include "parallel/gloo.h"
#include "parallel/wait.h"
}

#include <chrono>
#include <cstring>
#include <exception>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

/* What the thread that connects shares with the one that waits for it, which may
 * give up: then the first one is left behind, in a wait of Gloo's that cannot be
 * ended, and must not touch the store any more. */
struct Connecting {
    std::mutex lock; /* of the store, and of what follows */
    struct gpt_store *store;
    bool given_up = false, done = false;
    std::string error; /* empty: none */
    std::shared_ptr<gloo::rendezvous::Context> context;
};

/* Gloo exchanges addresses through our store. */
class Store : public gloo::rendezvous::Store {
  public:
    Store(std::shared_ptr<Connecting> shared, const std::string &name,
          double timeout)
        : shared_(std::move(shared)), prefix_("gloo/" + name + "/"),
          timeout_(timeout)
    {
    }

    void set(const std::string &key, const std::vector<char> &data) override
    {
        struct gpt_err err = {};
        std::lock_guard<std::mutex> guard(shared_->lock);

        if (shared_->given_up ||
            gpt_store_set(shared_->store, (prefix_ + key).c_str(), data.data(),
                          data.size(), &err) != GPT_OK)
            throw std::runtime_error(err.text);
    }

    /* The lock is free between two requests: the thread that waits for this one
     * looks for failures and signals then. */
    std::vector<char> get(const std::string &key) override
    {
        const double end = gpt_now() + timeout_;
        struct gpt_err err = {};
        void *value;
        size_t len;

        while (!ask(key, &value, &len, &err)) {
            if (gpt_now() > end)
                throw std::runtime_error("no address of member " + key);
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        const char *bytes = static_cast<const char *>(value);
        std::vector<char> data(bytes, bytes + len);
        gpt_free(value);
        return data;
    }

    void wait(const std::vector<std::string> &keys) override
    {
        for (const std::string &key : keys)
            get(key);
    }
    using gloo::rendezvous::Store::wait;

  private:
    bool ask(const std::string &key, void **value, size_t *len,
             struct gpt_err *err)
    {
        std::lock_guard<std::mutex> guard(shared_->lock);

        if (shared_->given_up || gpt_store_lost(shared_->store))
            throw std::runtime_error("given up");
        return gpt_store_get(shared_->store, (prefix_ + key).c_str(), 0, value,
                             len, err) == GPT_OK;
    }

    std::shared_ptr<Connecting> shared_;
    std::string prefix_;
    double timeout_;
};

/* Runs in a thread of its own. */
void connect_members(std::shared_ptr<Connecting> shared, std::string address,
                     std::string name, int rank, int size, double timeout)
{
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::string error;

    try {
        gloo::transport::tcp::attr attr(address.c_str());
        auto device = gloo::transport::tcp::CreateDevice(attr);
        Store through(shared, name, timeout);
        context = std::make_shared<gloo::rendezvous::Context>(rank, size);
        context->setTimeout(
            std::chrono::milliseconds(static_cast<int64_t>(timeout * 1e3)));
        context->connectFullMesh(through, device);
    } catch (const std::exception &e) {
        error = *e.what() ? e.what() : "failed";
    }
    std::lock_guard<std::mutex> guard(shared->lock);
    shared->context = std::move(context);
    shared->error = std::move(error);
    shared->done = true;
}

} // namespace

struct gpt_gloo {
    std::shared_ptr<gloo::rendezvous::Context> context;
    /* messages so far, a peer: Gloo pairs them by these numbers */
    std::vector<uint64_t> sent, received;
    std::mutex lock; /* of the two below */
    std::vector<Buffer> active;
    bool aborted = false;
};

/* The thread inherits the signal mask: signals are left to the main thread. */
static void start_connecting(const std::shared_ptr<Connecting> &shared,
                             const std::string &address,
                             const struct gpt_gloo_options &o)
{
    sigset_t old;

    gpt_thread_hold_signals(&old);
    try {
        std::thread(connect_members, shared, address, std::string(o.name),
                    static_cast<int>(o.rank), static_cast<int>(o.size),
                    o.timeout)
            .detach();
    } catch (...) {
        gpt_thread_release_signals(&old);
        throw;
    }
    gpt_thread_release_signals(&old);
}

/* True when connecting is over, one way or the other. GPT_EFAIL: it is given up,
 * since a member has failed or a signal asks to stop. */
static int check_connecting(Connecting *shared, bool *done, struct gpt_err *err)
{
    std::lock_guard<std::mutex> guard(shared->lock);

    *done = shared->done;
    if (*done)
        return GPT_OK;
    int status = gpt_store_check_wait(shared->store, err);
    shared->given_up = status != GPT_OK;
    return status;
}

/* Gloo's messages begin with "[file:line] " of its own. */
static const char *without_place(const char *text)
{
    const char *end = *text == '[' ? std::strstr(text, "] ") : nullptr;

    return end ? end + 2 : text;
}

/* Gloo waits for a member that never connects until its own timeout, for each
 * member in turn, and takes no notice of anything else. So it waits in a
 * thread. */
static int wait_until_connected(const std::shared_ptr<Connecting> &shared,
                                const struct gpt_gloo_options &o,
                                struct gpt_err *err)
{
    struct gpt_wait wait = gpt_wait_begin(o.timeout);
    bool done = false, counted = false;

    while (!done) {
        gpt_wait_pause(&wait);
        {
            std::lock_guard<std::mutex> guard(shared->lock);
            done = shared->done;
            shared->given_up = !done && gpt_wait_is_over(&wait);
        }
        if (shared->given_up)
            return gpt_fail(err, GPT_EIO, "not connected within %g s",
                            o.timeout);
        if (done || !gpt_wait_is_check_due(&wait))
            continue;
        GPT_TRY(check_connecting(shared.get(), &done, err));
        if (!counted)
            gpt_store_count_wait(shared->store, 1);
        counted = true;
        if (gpt_wait_is_long(&wait))
            gpt_wait_report(&wait, "connections of group '%s'", o.name);
    }
    if (!shared->error.empty())
        return gpt_fail(err, GPT_EIO, "%s",
                        without_place(shared->error.c_str()));
    if (counted)
        gpt_store_count_wait(shared->store, -1);
    return GPT_OK;
}

int gpt_gloo_open(struct gpt_gloo **out, struct gpt_store *store,
                  const struct gpt_gloo_options *o, struct gpt_err *err)
{
    char address[64];

    *out = nullptr;
    gpt_signals_ignore_pipes();
    gpt_store_local_address(store, address, sizeof(address));
    try {
        auto t = std::make_unique<gpt_gloo>();
        auto shared = std::make_shared<Connecting>();

        shared->store = store;
        t->sent.resize(static_cast<size_t>(o->size));
        t->received.resize(static_cast<size_t>(o->size));
        start_connecting(shared, address, *o);
        GPT_TRY(wait_until_connected(shared, *o, err));
        t->context = shared->context;
        *out = t.release();
        return GPT_OK;
    } catch (const std::exception &e) {
        return gpt_fail(err, GPT_EIO, "%s", e.what());
    }
}

void gpt_gloo_close(struct gpt_gloo *t)
{
    if (!t)
        return;
    try {
        t->context->closeConnections();
    } catch (const std::exception &) {
        /* they are gone already */
    }
    delete t;
}

static void post(struct gpt_gloo *t, const struct gpt_move *m,
                 gloo::transport::UnboundBuffer *buffer)
{
    const size_t peer = static_cast<size_t>(m->peer);

    if (m->send)
        buffer->send(static_cast<int>(m->peer), t->sent[peer]++);
    else
        buffer->recv(static_cast<int>(m->peer), t->received[peer]++);
}

int gpt_gloo_exchange(struct gpt_gloo *t, struct gpt_move *list,
                      int64_t n, struct gpt_err *err)
{
    /* no timeout of Gloo's own: the watcher (comm_watch.c) decides, as it can
     * say which member is missing, and ends the wait by an abort */
    const auto forever = std::chrono::milliseconds(1LL << 40);
    struct gpt_move *at = list; /* the move that an exception is of */
    bool done = true;

    try {
        {
            std::lock_guard<std::mutex> guard(t->lock);
            if (t->aborted)
                return gpt_fail(err, GPT_EFAIL, "given up");
            for (int64_t i = 0; i < n; i++)
                t->active.push_back(t->context->createUnboundBuffer(
                    list[i].buf, list[i].bytes));
        }
        /* all are posted before any is waited for: no order of the members
         * can make them wait for each other in a circle */
        for (int64_t i = 0; i < n; i++) {
            at = &list[i];
            post(t, at, t->active[static_cast<size_t>(i)].get());
        }
        for (int64_t i = 0; i < n && done; i++) {
            auto &buffer = t->active[static_cast<size_t>(i)];
            at = &list[i];
            done = at->send ? buffer->waitSend(nullptr, forever)
                            : buffer->waitRecv(nullptr, forever);
            __atomic_store_n(&at->done, done, __ATOMIC_RELAXED);
        }
        std::lock_guard<std::mutex> guard(t->lock);
        t->active.clear();
    } catch (const std::exception &e) {
        std::lock_guard<std::mutex> guard(t->lock);
        t->active.clear();
        at->lost = true;
        return gpt_fail(err, GPT_EIO, "%s", without_place(e.what()));
    }
    return done ? GPT_OK : gpt_fail(err, GPT_EFAIL, "given up");
}

/* Called by the watcher while the thread of the exchange waits in Gloo. The
 * lock keeps the buffers alive meanwhile: that thread clears them only with it.
 * The flag comes first, so an exchange that begins later does not wait. */
void gpt_gloo_abort(struct gpt_gloo *t)
{
    std::lock_guard<std::mutex> guard(t->lock);

    t->aborted = true;
    for (auto &buffer : t->active) {
        buffer->abortWaitRecv();
        buffer->abortWaitSend();
    }
}
