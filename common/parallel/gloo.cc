/* Messages through Gloo. Its collectives are not used: comm_host.c makes them
 * of messages, so that the order of sums is known and a member that does not
 * answer can be named. No exception leaves this file. Start at
 * gpt_gloo_exchange(). */
extern "C" {
#include "base/memory.h"
#include "base/progress.h"
#include "parallel/gloo.h"
}

#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

/* Gloo exchanges addresses through our store. */
class Store : public gloo::rendezvous::Store {
  public:
    Store(struct gpt_store *store, const char *name, double timeout)
        : store_(store), prefix_(std::string("gloo/") + name + "/"),
          timeout_(timeout)
    {
    }

    void set(const std::string &key, const std::vector<char> &data) override
    {
        struct gpt_err err = {};
        if (gpt_store_set(store_, (prefix_ + key).c_str(), data.data(),
                          data.size(), &err) != GPT_OK)
            throw std::runtime_error(err.text);
    }

    /* Waits in short steps and asks between them for failures: a member that
     * has failed will never set its address. */
    std::vector<char> get(const std::string &key) override
    {
        const double end = gpt_now() + timeout_;
        struct gpt_err err = {};
        void *value;
        size_t len;

        while (gpt_store_get(store_, (prefix_ + key).c_str(), 0.5, &value,
                             &len, &err) != GPT_OK) {
            struct gpt_err failure;

            if (gpt_store_failed(store_, &failure))
                throw std::runtime_error("rank " +
                                         std::to_string(failure.rank) + " " +
                                         failure.text);
            if (gpt_now() > end)
                throw std::runtime_error("no address of member " + key);
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
    struct gpt_store *store_;
    std::string prefix_;
    double timeout_;
};

} // namespace

struct gpt_gloo {
    std::shared_ptr<gloo::rendezvous::Context> context;
    /* messages so far, a peer: Gloo pairs them by these numbers */
    std::vector<uint64_t> sent, received;
    std::mutex lock; /* of the two below */
    std::vector<Buffer> active;
    bool aborted = false;
};

/* Gloo writes to peers that may be gone; that is to be an error, which is
 * reported with their rank, and not this process's death. */
static void ignore_broken_pipes()
{
    struct sigaction now = {};

    if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
        std::signal(SIGPIPE, SIG_IGN);
}

int gpt_gloo_open(struct gpt_gloo **out, struct gpt_store *store,
                  const char *name, int64_t rank, int64_t size,
                  double timeout, struct gpt_err *err)
{
    char address[64];

    *out = nullptr;
    ignore_broken_pipes();
    gpt_store_local_address(store, address, sizeof(address));
    try {
        auto t = std::make_unique<gpt_gloo>();
        gloo::transport::tcp::attr attr(address);
        auto device = gloo::transport::tcp::CreateDevice(attr);
        Store through(store, name, timeout);
        t->context = std::make_shared<gloo::rendezvous::Context>(
            static_cast<int>(rank), static_cast<int>(size));
        t->context->setTimeout(
            std::chrono::milliseconds(static_cast<int64_t>(timeout * 1e3)));
        t->context->connectFullMesh(through, device);
        t->sent.resize(static_cast<size_t>(size));
        t->received.resize(static_cast<size_t>(size));
        *out = t.release();
        return GPT_OK;
    } catch (const std::exception &e) {
        return gpt_fail(err, GPT_EIO, "cannot connect group '%s': %s", name,
                        e.what());
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

/* Gloo's messages begin with "[file:line] " of its own. */
static const char *without_place(const char *text)
{
    const char *end = *text == '[' ? std::strstr(text, "] ") : nullptr;

    return end ? end + 2 : text;
}

int gpt_gloo_exchange(struct gpt_gloo *t, struct gpt_move *list,
                      int64_t n, struct gpt_err *err)
{
    /* no timeout of Gloo's own: the watcher (comm_watch.c) decides, as it can
     * say which member is missing, and ends the wait by an abort */
    const auto forever = std::chrono::milliseconds(86400 * 1000);
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
