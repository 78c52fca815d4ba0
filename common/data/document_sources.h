/* PREFIX_KEY_document.sources, beside a data set: for each document the file
 * and the line that it comes from. gpt-dataset(5) describes it. The records
 * name inputs by their number in the JSON of data/provenance.h. */
#ifndef GPT_DATA_DOCUMENT_SOURCES_H
#define GPT_DATA_DOCUMENT_SOURCES_H

#include "base/status.h"

#define GPT_SOURCES_MAGIC "GPTSRC1" /* and NUL; then a record a document */
enum { GPT_SOURCES_HEADER = 8, GPT_SOURCE_BYTES = 16 };

/* A record: u32, u32, u64, little-endian. */
struct gpt_source_record {
    uint32_t input;  /* number in the JSON's "inputs" */
    uint32_t line;   /* from 1; 0 when not known: in a part of a file */
    uint64_t offset; /* of the line in the file, decompressed */
};
/* Writes a record as the file has it. */
void gpt_source_put(uint8_t record[GPT_SOURCE_BYTES],
                    const struct gpt_source_record *source);

/* GPT_EDATA when the file does not hold a record for each document: they are
 * found by number. */
struct gpt_in;
int gpt_sources_check(struct gpt_in *in, int64_t n_documents,
                      struct gpt_err *err) GPT_MUST_USE;

/* The sources of an open data set. */
struct gpt_sources;

/* GPT_EIO when the files are not there, GPT_EDATA when they do not fit a set of
 * n_documents. */
int gpt_sources_open(struct gpt_sources **s, const char *prefix,
                     int64_t n_documents, struct gpt_err *err) GPT_MUST_USE;
void gpt_sources_close(struct gpt_sources *s); /* NULL is fine */

/* Reads the record of a document, and the name of its file, borrowed. GPT_EDATA
 * when the record names an input that the JSON does not have. */
int gpt_sources_get(const struct gpt_sources *s, int64_t document,
                    struct gpt_source_record *source, const char **path,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
