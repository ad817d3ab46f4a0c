#pragma once
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *memcpy(void *, const void *, size_t);
void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
int strcmp(const char *, const char *);
int strncmp(const char *, const char *, size_t);
size_t strlen(const char *);
size_t strspn(const char *, const char *);
size_t strcspn(const char *, const char *);
char *strerror(int);
#ifdef __cplusplus
}
const void *memchr(const void *, int, size_t);
void *memchr(void *, int, size_t);
const char *strchr(const char *, int);
char *strchr(char *, int);
const char *strrchr(const char *, int);
char *strrchr(char *, int);
const char *strstr(const char *, const char *);
char *strstr(char *, const char *);
const char *strpbrk(const char *, const char *);
char *strpbrk(char *, const char *);
#else
void *memchr(const void *, int, size_t);
char *strchr(const char *, int);
char *strrchr(const char *, int);
char *strstr(const char *, const char *);
char *strpbrk(const char *, const char *);
#endif
