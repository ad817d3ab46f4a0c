/* os.h: what the tests want of a system beyond C: POSIX by its own names, and on Windows the few of
   them that mingw-w64 lacks. Only os_run, os_remove_tree and os_same_tree are written for both. */
#ifndef CKR_OS_H
#define CKR_OS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(_WIN32)
#  include <direct.h>
#  include <io.h>
#  ifndef WIN32_LEAN_AND_MEAN
#    define WIN32_LEAN_AND_MEAN
#  endif
#  include <windows.h>
#else
#  include <signal.h>
#  include <sys/mman.h>
#  include <sys/wait.h>
#endif

#if defined(__GNUC__)
#  define OS_UNUSED __attribute__((unused))
#else
#  define OS_UNUSED
#endif

#if defined(_WIN32)
#  undef IN                    /* words of windows.h that the tests have for themselves */
#  undef OUT
#  undef NEAR
#  define mkdir(path, mode) _mkdir(path)

OS_UNUSED static char *mkdtemp(char *path)
{
    static unsigned n;
    char *end = path + strlen(path) - 6;
    int tries;
    for (tries = 0; tries < 100; tries++) {
        sprintf(end, "%06x", ((unsigned)GetCurrentProcessId() * 4099u + n++) & 0xffffffu);
        if (_mkdir(path) == 0) return path;
        if (errno != EEXIST) return NULL;
    }
    return NULL;
}

OS_UNUSED static int setenv(const char *name, const char *value, int over)
{
    return !over && getenv(name) ? 0 : _putenv_s(name, value);
}
#endif

/* Ends this process where it stands, as kill -9 does. */
OS_UNUSED static void os_die(void)
{
#if defined(_WIN32)
    TerminateProcess(GetCurrentProcess(), 137);
#else
    kill(getpid(), SIGKILL);
#endif
}

/* Zeroed memory of which little is touched; NULL when there is none. */
OS_UNUSED static void *os_map(uint64_t n)
{
#if defined(_WIN32)
    return VirtualAlloc(NULL, (SIZE_T)n, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
#else
    void *p = mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
#endif
}

OS_UNUSED static void os_unmap(void *p, uint64_t n)
{
#if defined(_WIN32)
    (void)n;
    VirtualFree(p, 0, MEM_RELEASE);
#else
    munmap(p, (size_t)n);
#endif
}

/* Removes a file, or a tree whose links are not followed. */
#if defined(_WIN32)
static void os_remove_wide(const WCHAR *path)
{
    const DWORD a = GetFileAttributesW(path), link = FILE_ATTRIBUTE_REPARSE_POINT;
    WCHAR sub[1200];
    WIN32_FIND_DATAW e;
    HANDLE h;
    if (a == INVALID_FILE_ATTRIBUTES) return;
    SetFileAttributesW(path, FILE_ATTRIBUTE_NORMAL);
    if (!(a & FILE_ATTRIBUTE_DIRECTORY)) DeleteFileW(path);
    if (!(a & FILE_ATTRIBUTE_DIRECTORY) || wcslen(path) + MAX_PATH + 2 > 1200) return;
    wcscat(wcscpy(sub, path), L"/*");
    h = a & link ? INVALID_HANDLE_VALUE : FindFirstFileW(sub, &e);
    if (h != INVALID_HANDLE_VALUE) {
        do {
            if (!wcscmp(e.cFileName, L".") || !wcscmp(e.cFileName, L"..")) continue;
            wcscat(wcscat(wcscpy(sub, path), L"/"), e.cFileName);
            os_remove_wide(sub);
        } while (FindNextFileW(h, &e));
        FindClose(h);
    }
    RemoveDirectoryW(path);
}

OS_UNUSED static void os_remove_tree(const char *path)
{
    WCHAR wide[1200];
    if (MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 1200) > 0) os_remove_wide(wide);
}
#else
OS_UNUSED static void os_remove_tree(const char *path)
{
    struct stat st;
    DIR *d = lstat(path, &st) == 0 && S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    struct dirent *e;
    char sub[1200];
    while (d && (e = readdir(d)) != NULL) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        os_remove_tree(sub);
    }
    if (d) closedir(d);
    remove(path);
}
#endif

OS_UNUSED static bool os_same_file(const char *a, const char *b)
{
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    bool same = f && g;
    char x[4096], y[4096];
    size_t n = 1, m;
    while (same && n) {
        n = fread(x, 1, sizeof x, f);
        m = fread(y, 1, sizeof y, g);
        same = n == m && !memcmp(x, y, n);
    }
    if (f) fclose(f);
    if (g) fclose(g);
    return same;
}

/* The same names with the same bytes below both, as `diff -r` has it. */
OS_UNUSED static bool os_same_tree(const char *a, const char *b)
{
    int n[2] = { 0, 0 }, side;
    bool same = true;
    for (side = 0; side < 2; side++) {
        DIR *d = opendir(side ? b : a);
        struct dirent *e;
        if (!d) return side == 0 && os_same_file(a, b);
        while ((e = readdir(d)) != NULL) {
            char x[1200], y[1200];
            if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
            n[side]++;
            if (side) continue;
            snprintf(x, sizeof x, "%s/%s", a, e->d_name);
            snprintf(y, sizeof y, "%s/%s", b, e->d_name);
            same = same && os_same_tree(x, y);
        }
        closedir(d);
    }
    return same && n[0] == n[1];
}

#if defined(_WIN32)
/* One word of a command line in the way in which programs take it apart. */
static char *os_quote(char *to, const char *s)
{
    *to++ = '"';
    for (; *s; s++) {
        size_t n = 0;
        for (; s[n] == '\\'; n++) {}
        memset(to, '\\', 2 * n);
        to += s[n] == '"' || !s[n] ? 2 * n : n;
        s += n;
        if (!*s) break;
        if (*s == '"') *to++ = '\\';
        *to++ = *s;
    }
    *to++ = '"';
    *to++ = ' ';
    *to = 0;
    return to;
}
#endif

/* Runs args[0], a path, with its output into files. Its exit code; -1: it did not start, or did not
   end by itself. Names and words are UTF-8. */
OS_UNUSED static int os_run(const char *const *args, const char *out, const char *note)
{
#if defined(_WIN32)
    static WCHAR wide[16384];
    static char line[16384];
    SECURITY_ATTRIBUTES inherit = { sizeof inherit, NULL, TRUE };
    STARTUPINFOW start;
    PROCESS_INFORMATION p;
    DWORD code = (DWORD)-1;
    char *end = line;
    BOOL ok;
    memset(&start, 0, sizeof start);
    start.cb = sizeof start;
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    start.hStdOutput = CreateFileA(out, GENERIC_WRITE, 3, &inherit, CREATE_ALWAYS, 0, NULL);
    start.hStdError = CreateFileA(note, GENERIC_WRITE, 3, &inherit, CREATE_ALWAYS, 0, NULL);
    for (; *args; args++) end = os_quote(end, *args);
    MultiByteToWideChar(CP_UTF8, 0, line, -1, wide, 16384);
    ok = CreateProcessW(NULL, wide, NULL, NULL, TRUE, 0, NULL, NULL, &start, &p);
    CloseHandle(start.hStdOutput);
    CloseHandle(start.hStdError);
    if (!ok) return -1;
    WaitForSingleObject(p.hProcess, INFINITE);
    GetExitCodeProcess(p.hProcess, &code);
    CloseHandle(p.hProcess);
    CloseHandle(p.hThread);
    return (int)code;
#else
    int status = 0;
    pid_t pid;
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0666), 1);
        dup2(open(note, O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
        execv(args[0], (char *const *)(size_t)args);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
#endif
}

#endif
