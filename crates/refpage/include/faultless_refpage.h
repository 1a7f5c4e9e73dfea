/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Reference pages on stock Linux: fresh memory that starts out as a pattern instead of zero.
 *
 * Memory from refpage_map reads as the pattern, repeated from its first byte on, until it is
 * written. A page that nobody writes costs no memory and no memset.
 *
 *     refpage_t *pages = refpage_create("\xAA", 1);
 *     unsigned char *memory = refpage_map(pages, 64 << 20);
 *     memory[0] = 1;
 *     refpage_reset(pages, memory, 0, 4096);    // memory[0] is 0xAA again
 *     refpage_unmap(pages, memory);
 *     refpage_destroy(pages);
 *
 * All functions may be called from several threads, before and after fork, and from inside an
 * allocator: none of them calls malloc. On failure they set errno; on success they leave it alone.
 */
#ifndef FAULTLESS_REFPAGE_H
#define FAULTLESS_REFPAGE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A pattern. */
typedef struct refpage refpage_t;

/* Return an error where pages cannot be patterned by tiles, instead of filling memory. */
#define REFPAGE_FAIL_INSTEAD_OF_FILL 1u
/* Let the kernel use huge pages in patterned ranges, as the system is configured. */
#define REFPAGE_HUGE_PAGES 2u

struct refpage_options {
    /* sizeof(struct refpage_options) */
    size_t struct_size;
    /* The least length of a tile in bytes; 0: chosen from each allocation's length. */
    size_t tile_len;
    /* REFPAGE_... */
    unsigned int flags;
    /* Called once for a pattern, when memory is filled since it cannot be tiled: with the errno
     * that says why (see refpage_strerror), from the thread that maps. May be NULL. */
    void (*on_fallback)(int error, void *argument);
    void *argument;
};

/* Returns the pattern that repeats the len bytes of content, or NULL.
 * Two patterns of the same content share one memfd.
 *   EINVAL  len is 0, or content NULL
 *   ENOMEM  no memory */
refpage_t *refpage_create(const void *content, size_t len);

/* The same with choices; options may be NULL.
 *   EINVAL  also: struct_size is wrong, or a flag unknown */
refpage_t *refpage_create_with(const void *content, size_t len,
                               const struct refpage_options *options);

/* Destroys a pattern. Its mappings stay as they are, but only an equal pattern, one of the same
 * content, can reset and unmap them then. NULL is allowed. */
void refpage_destroy(refpage_t *pages);

/* Returns len bytes of fresh memory, rounded up to whole pages, or NULL.
 *   EINVAL  len is 0
 *   ENOMEM  no memory, or no address space
 * and, with REFPAGE_FAIL_INSTEAD_OF_FILL only:
 *   ENOSPC  vm.max_map_count is reached
 *   EMFILE  no descriptor is left for the memfd
 *   EFBIG   the file-size limit is below the tile's length
 *   EDOM    the pattern's length and the page's meet too late for a tile
 *   ENOSYS, EPERM, EACCES ...  the kernel refuses memfd_create or sealing */
void *refpage_map(const refpage_t *pages, size_t len);

/* The same at a multiple of align, a power of two (else EINVAL). */
void *refpage_map_aligned(const refpage_t *pages, size_t len, size_t align);

/* Returns len bytes of a mapping, from offset on, to the pattern, and whole pages among them to
 * the system. Returns 0, or -1:
 *   EINVAL  mapping was not returned by refpage_map, or has been unmapped
 *   ERANGE  the range does not lie inside the mapping */
int refpage_reset(const refpage_t *pages, void *mapping, size_t offset, size_t len);

/* Unmaps what refpage_map returned. Returns 0, or -1:
 *   EINVAL  mapping was not returned by refpage_map, or has been unmapped */
int refpage_unmap(const refpage_t *pages, void *mapping);

/* Returns the length of a mapping in bytes, whole pages; 0 if it is none of this library. */
size_t refpage_size(const void *mapping);

/* Returns where a mapping's pattern comes from. */
#define REFPAGE_KIND_NONE 0   /* it is no mapping of this library */
#define REFPAGE_KIND_TILED 1  /* from tiles: pages cost memory only when they are written */
#define REFPAGE_KIND_FILLED 2 /* it was written, since tiles were impossible */
#define REFPAGE_KIND_ZERO 3   /* the pattern is zero, so it is plain anonymous memory */
int refpage_kind(const void *mapping);

/* Returns a descriptor of the pattern's memfd for another process to attach to, or -1. It is
 * closed on exec unless that flag is cleared, and the caller closes it. */
int refpage_share(const refpage_t *pages);

/* Returns a pattern whose memfd another process made, or NULL. The descriptor is duplicated.
 *   EINVAL   it is no memfd sealed against writing, growing and shrinking; or len is 0
 *   EBADMSG  it holds something else than content */
refpage_t *refpage_attach(const void *content, size_t len, int fd);

/* Returns words for an errno of these functions. The string is constant. */
const char *refpage_strerror(int error);

#ifdef __cplusplus
}
#endif

#endif
