/* Reading zip archives whose entries are stored as they are, which is what
 * torch.save() writes. Start at gpt_zip_open(). Source of the format: PKWARE,
 * APPNOTE.TXT.
 *
 * The reader believes nothing: the list of entries at the end and the header
 * of each entry must agree, entries must not overlap, and names must be
 * different and stay in a directory, so that two readers cannot see two
 * archives in one file. */
#ifndef GPT_CHECKPOINT_ZIP_H
#define GPT_CHECKPOINT_ZIP_H

#include "base/io.h"
#include "base/memory.h"

/* The numbers that records of an archive begin with, little-endian. */
#define GPT_ZIP_HEADER UINT32_C(0x04034b50)  /* before the data of an entry */
#define GPT_ZIP_ENTRY UINT32_C(0x02014b50)   /* an entry in the list */
#define GPT_ZIP_END64 UINT32_C(0x06064b50)   /* after the list, in 64 bits */
#define GPT_ZIP_LOCATOR UINT32_C(0x07064b50) /* where that record is */
#define GPT_ZIP_END UINT32_C(0x06054b50)     /* the last record */

struct gpt_zip_entry {
    const char *name;
    int64_t header; /* offsets in the file: of the entry, of its data */
    int64_t begin;
    int64_t bytes;
    uint32_t crc; /* CRC-32 of the data, as the archive says */
};

struct gpt_zip {
    struct gpt_zip_entry *entries; /* by name */
    int64_t n;
    const char *first; /* name of the entry that comes first in the file */
    struct gpt_arena arena;
};

/* The archive at bytes [begin, begin + size) of `in`: lists alone are read.
 * GPT_EDATA names file and offset; compressed and encrypted entries are
 * refused. */
int gpt_zip_open(struct gpt_zip *zip, struct gpt_in *in, int64_t begin,
                 int64_t size, struct gpt_err *err) GPT_MUST_USE;
void gpt_zip_close(struct gpt_zip *zip); /* zero is fine */

/* NULL when there is none. */
const struct gpt_zip_entry *gpt_zip_find(const struct gpt_zip *zip,
                                         const char *name);

#endif
