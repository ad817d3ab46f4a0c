#pragma once
#ifdef __cplusplus
extern "C"
#endif
int *_errno(void);
#define errno (*_errno())
#define EPERM 1
#define ENOENT 2
#define EIO 5
#define ENOMEM 12
#define EACCES 13
#define EBUSY 16
#define EEXIST 17
#define EXDEV 18
#define ENOTDIR 20
#define EISDIR 21
#define EINVAL 22
#define ENFILE 23
#define EMFILE 24
#define EFBIG 27
#define ENOSPC 28
#define EROFS 30
#define ERANGE 34
#define ENAMETOOLONG 38
#define ENOSYS 40
#define ENOTEMPTY 41
#define EILSEQ 42
#define ELOOP 114
