/* Bytes of one file that become those of another without passing through this
 * process: blocks that both files then share, or a copy that a server makes. */
#include "base/io_internal.h"

#include <sys/stat.h>

/* The kind of file system decides: others copy page by page, which a read and a
 * write do as well. */
bool gpt_out_shares(const struct gpt_out *out, const struct gpt_in *in)
{
    static const uint32_t kinds[] = {
        GPT_FS_XFS,
        GPT_FS_BTRFS,
        0xca451a4e, /* bcachefs */
        0x7461636f, /* OCFS2 */
        0x2fc12fc1, /* ZFS */
        0x6969,     /* NFS */
        0xfe534d42, /* SMB */
    };
    struct stat a, b;

    return !out->stream && fstat(out->fd, &a) == 0 &&
           fstat(gpt_in_descriptor(in), &b) == 0 && a.st_dev == b.st_dev &&
           gpt_raw_is_in(out->fd, kinds, GPT_COUNT(kinds));
}

bool gpt_out_share(struct gpt_out *out, int64_t offset, const struct gpt_in *in,
                   int64_t from, int64_t n)
{
    int64_t done = 0, some = 1;

    while (done < n && some > 0) {
        some = gpt_raw_copy(out->fd, offset + done, gpt_in_descriptor(in),
                            from + done, n - done);
        done += some > 0 ? some : 0;
    }
    return done == n;
}
