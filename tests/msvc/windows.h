#pragma once
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/* what its macros take away: none of these can be a variable */
#define far
#define near
#define FAR
#define NEAR
#define IN
#define OUT
#define WINAPI __stdcall
typedef int BOOL;
typedef unsigned long DWORD;
typedef unsigned short WORD;
typedef long LONG;
typedef __int64 LONGLONG;
typedef unsigned __int64 ULONGLONG;
typedef unsigned __int64 ULONG_PTR;
typedef unsigned __int64 SIZE_T;
typedef unsigned int UINT;
typedef wchar_t WCHAR;
typedef void *HANDLE;
typedef void *PVOID;
typedef void *LPVOID;
typedef union { struct { DWORD LowPart; LONG HighPart; } u; LONGLONG QuadPart; } LARGE_INTEGER;
typedef union { struct { DWORD LowPart, HighPart; } u; ULONGLONG QuadPart; } ULARGE_INTEGER;
typedef struct { DWORD dwLowDateTime, dwHighDateTime; } FILETIME;
typedef struct {
    ULONG_PTR Internal, InternalHigh;
    union { struct { DWORD Offset, OffsetHigh; }; PVOID Pointer; };
    HANDLE hEvent;
} OVERLAPPED;
typedef struct {
    DWORD dwFileAttributes;
    FILETIME ftCreationTime, ftLastAccessTime, ftLastWriteTime;
    DWORD dwVolumeSerialNumber, nFileSizeHigh, nFileSizeLow, nNumberOfLinks;
    DWORD nFileIndexHigh, nFileIndexLow;
} BY_HANDLE_FILE_INFORMATION;
#define MAX_PATH 260
typedef struct {
    DWORD dwFileAttributes;
    FILETIME ftCreationTime, ftLastAccessTime, ftLastWriteTime;
    DWORD nFileSizeHigh, nFileSizeLow, dwReserved0, dwReserved1;
    WCHAR cFileName[MAX_PATH], cAlternateFileName[14];
} WIN32_FIND_DATAW;
typedef struct {
    DWORD dwOemId, dwPageSize;
    void *lpMinimumApplicationAddress, *lpMaximumApplicationAddress;
    ULONG_PTR dwActiveProcessorMask;
    DWORD dwNumberOfProcessors, dwProcessorType, dwAllocationGranularity;
    WORD wProcessorLevel, wProcessorRevision;
} SYSTEM_INFO;
typedef struct SECURITY_ATTRIBUTES SECURITY_ATTRIBUTES;
typedef DWORD(WINAPI *LPTHREAD_START_ROUTINE)(LPVOID);
#define INVALID_HANDLE_VALUE ((HANDLE)(long long)-1)
#define INVALID_FILE_ATTRIBUTES ((DWORD)-1)
#define TRUE 1
#define FALSE 0
#define INFINITE 0xffffffffu
#define CP_UTF8 65001
#define MB_ERR_INVALID_CHARS 8
#define GENERIC_READ 0x80000000u
#define GENERIC_WRITE 0x40000000u
#define DELETE 0x10000
#define FILE_SHARE_READ 1
#define FILE_SHARE_WRITE 2
#define FILE_SHARE_DELETE 4
#define CREATE_NEW 1
#define OPEN_EXISTING 3
#define OPEN_ALWAYS 4
#define FILE_ATTRIBUTE_READONLY 1
#define FILE_ATTRIBUTE_HIDDEN 2
#define FILE_ATTRIBUTE_DIRECTORY 0x10
#define FILE_ATTRIBUTE_NORMAL 0x80
#define FILE_ATTRIBUTE_REPARSE_POINT 0x400
#define FILE_FLAG_BACKUP_SEMANTICS 0x02000000
#define FILE_FLAG_DELETE_ON_CLOSE 0x04000000
#define FILE_TYPE_DISK 1
#define MOVEFILE_REPLACE_EXISTING 1
#define MOVEFILE_WRITE_THROUGH 8
#define ERROR_FILE_NOT_FOUND 2L
#define ERROR_PATH_NOT_FOUND 3L
#define ERROR_TOO_MANY_OPEN_FILES 4L
#define ERROR_ACCESS_DENIED 5L
#define ERROR_NOT_ENOUGH_MEMORY 8L
#define ERROR_OUTOFMEMORY 14L
#define ERROR_INVALID_DRIVE 15L
#define ERROR_NOT_SAME_DEVICE 17L
#define ERROR_NO_MORE_FILES 18L
#define ERROR_WRITE_PROTECT 19L
#define ERROR_NOT_READY 21L
#define ERROR_SHARING_VIOLATION 32L
#define ERROR_LOCK_VIOLATION 33L
#define ERROR_HANDLE_DISK_FULL 39L
#define ERROR_NOT_SUPPORTED 50L
#define ERROR_BAD_NETPATH 53L
#define ERROR_BAD_NET_NAME 67L
#define ERROR_FILE_EXISTS 80L
#define ERROR_BUFFER_OVERFLOW 111L
#define ERROR_DISK_FULL 112L
#define ERROR_INVALID_NAME 123L
#define ERROR_DIR_NOT_EMPTY 145L
#define ERROR_BAD_PATHNAME 161L
#define ERROR_ALREADY_EXISTS 183L
#define ERROR_FILENAME_EXCED_RANGE 206L
#define ERROR_FILE_TOO_LARGE 223L
#define ERROR_DIRECTORY 267L
#define ERROR_NO_UNICODE_TRANSLATION 1113L
#define ERROR_USER_MAPPED_FILE 1224L
#define ERROR_NO_SYSTEM_RESOURCES 1450L
#define ERROR_CANT_RESOLVE_FILENAME 1921L
DWORD WINAPI GetLastError(void);
void WINAPI SetLastError(DWORD);
HANDLE WINAPI CreateFileW(const WCHAR *, DWORD, DWORD, SECURITY_ATTRIBUTES *, DWORD, DWORD, HANDLE);
HANDLE WINAPI ReOpenFile(HANDLE, DWORD, DWORD, DWORD);
BOOL WINAPI CloseHandle(HANDLE);
BOOL WINAPI ReadFile(HANDLE, LPVOID, DWORD, DWORD *, OVERLAPPED *);
BOOL WINAPI WriteFile(HANDLE, const void *, DWORD, DWORD *, OVERLAPPED *);
BOOL WINAPI FlushFileBuffers(HANDLE);
BOOL WINAPI GetFileSizeEx(HANDLE, LARGE_INTEGER *);
BOOL WINAPI SetFilePointerEx(HANDLE, LARGE_INTEGER, LARGE_INTEGER *, DWORD);
BOOL WINAPI SetEndOfFile(HANDLE);
#define FILE_BEGIN 0
DWORD WINAPI GetFileType(HANDLE);
BOOL WINAPI GetFileInformationByHandle(HANDLE, BY_HANDLE_FILE_INFORMATION *);
DWORD WINAPI GetFileAttributesW(const WCHAR *);
BOOL WINAPI SetFileAttributesW(const WCHAR *, DWORD);
DWORD WINAPI GetFullPathNameW(const WCHAR *, DWORD, WCHAR *, WCHAR **);
HANDLE WINAPI FindFirstFileW(const WCHAR *, WIN32_FIND_DATAW *);
BOOL WINAPI FindNextFileW(HANDLE, WIN32_FIND_DATAW *);
BOOL WINAPI FindClose(HANDLE);
BOOL WINAPI MoveFileExW(const WCHAR *, const WCHAR *, DWORD);
BOOL WINAPI DeleteFileW(const WCHAR *);
BOOL WINAPI CreateDirectoryW(const WCHAR *, SECURITY_ATTRIBUTES *);
BOOL WINAPI RemoveDirectoryW(const WCHAR *);
BOOL WINAPI GetDiskFreeSpaceExW(const WCHAR *, ULARGE_INTEGER *, ULARGE_INTEGER *,
                                ULARGE_INTEGER *);
int WINAPI MultiByteToWideChar(UINT, DWORD, const char *, int, WCHAR *, int);
int WINAPI WideCharToMultiByte(UINT, DWORD, const WCHAR *, int, char *, int, const char *, BOOL *);
HANDLE WINAPI CreateThread(SECURITY_ATTRIBUTES *, SIZE_T, LPTHREAD_START_ROUTINE, LPVOID, DWORD,
                           DWORD *);
DWORD WINAPI WaitForSingleObject(HANDLE, DWORD);
void WINAPI Sleep(DWORD);
void WINAPI GetSystemInfo(SYSTEM_INFO *);
typedef struct { void *Ptr; } SRWLOCK, CONDITION_VARIABLE;
void WINAPI InitializeSRWLock(SRWLOCK *);
void WINAPI AcquireSRWLockExclusive(SRWLOCK *);
void WINAPI ReleaseSRWLockExclusive(SRWLOCK *);
void WINAPI InitializeConditionVariable(CONDITION_VARIABLE *);
BOOL WINAPI SleepConditionVariableSRW(CONDITION_VARIABLE *, SRWLOCK *, DWORD, DWORD);
void WINAPI WakeAllConditionVariable(CONDITION_VARIABLE *);
#ifdef __cplusplus
}
#endif
