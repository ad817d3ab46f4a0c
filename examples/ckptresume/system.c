/* What C's library has no right words for on Windows: there names are UTF-16, and this program has
   them in UTF-8 throughout. Elsewhere nothing but the library's own. */

#include "tool.h"

#if defined(_WIN32)
#  include <direct.h>
#  include <fcntl.h>
#  include <io.h>
#  ifndef WIN32_LEAN_AND_MEAN
#    define WIN32_LEAN_AND_MEAN
#  endif
#  include <windows.h>
#  include <shellapi.h>
#  if defined(_MSC_VER)
#    pragma comment(lib, "shell32")
#  endif
#else
#  include <sys/ioctl.h>
#  include <sys/resource.h>
#  include <unistd.h>
#endif

#if defined(_WIN32)
static char *utf8_of(const WCHAR *s)
{
    const int n = WideCharToMultiByte(CP_UTF8, 0, s, -1, NULL, 0, NULL, NULL);
    char *out = n > 0 ? (char *)malloc((size_t)n) : NULL;
    if (out) WideCharToMultiByte(CP_UTF8, 0, s, -1, out, n, NULL, NULL);
    return out;
}

static WCHAR *wide_of(const char *s)
{
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, s, -1, NULL, 0);
    WCHAR *out = n > 0 ? (WCHAR *)malloc((size_t)n * sizeof *out) : NULL;
    if (out) MultiByteToWideChar(CP_UTF8, 0, s, -1, out, n);
    return out;
}

FILE *file_open(const char *path, const char *mode)
{
    WCHAR *p = wide_of(path), *m = wide_of(mode);
    FILE *f = p && m ? _wfopen(p, m) : NULL;
    if (!p || !m) errno = ENOENT;
    free(p);
    free(m);
    return f;
}

void file_remove(const char *path)
{
    WCHAR *p = wide_of(path);
    if (p) _wremove(p);
    free(p);
}

bool file_rename(const char *from, const char *to)
{
    WCHAR *a = wide_of(from), *b = wide_of(to);
    const bool ok = a && b && MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING);
    if (!ok) errno = EACCES;
    free(a);
    free(b);
    return ok;
}

/* tmpfile() makes its file in the drive's root, where only administrators may. */
FILE *file_temporary(void)
{
    WCHAR dir[MAX_PATH + 1], path[MAX_PATH + 1];
    const DWORD n = GetTempPathW(MAX_PATH + 1, dir);
    if (n && n <= MAX_PATH && GetTempFileNameW(dir, L"ckr", 0, path))
        return _wfopen(path, L"w+bTD");            /* kept in memory if it can; goes when closed */
    errno = EACCES;
    return NULL;
}

/* The words of the command line as they were typed: C's are in an old code page, with wildcards
   filled in. And lines end here as everywhere else. */
char **words_of(int *argc, char **argv)
{
    WCHAR **wide = CommandLineToArgvW(GetCommandLineW(), argc);
    char **out = wide ? (char **)calloc((size_t)*argc + 1, sizeof *out) : NULL;
    int i;
    _setmode(_fileno(stdout), _O_BINARY);
    _setmode(_fileno(stderr), _O_BINARY);
    if (_isatty(_fileno(stdout)) || _isatty(_fileno(stderr))) SetConsoleOutputCP(CP_UTF8);
    for (i = 0; out && i < *argc; i++)
        if ((out[i] = utf8_of(wide[i])) == NULL) *argc = i;
    LocalFree((HLOCAL)wide);
    return out ? out : argv;
}
#endif
double now_seconds(void)
{
#if defined(_WIN32)
    return (double)clock() / CLOCKS_PER_SEC;         /* of the wall in Microsoft's C library */
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
}

bool is_terminal(FILE *f)
{
#if defined(_WIN32)
    return _isatty(_fileno(f)) != 0;
#else
    return isatty(fileno(f)) != 0;
#endif
}

/* Of COLUMNS, else of the terminal that f is, else `otherwise`. */
size_t terminal_columns(FILE *f, size_t otherwise)
{
    const char *told = getenv("COLUMNS");
    const long n = told ? strtol(told, NULL, 10) : 0;
    size_t w = n > 0 ? (size_t)n : 0;
#if defined(_WIN32)
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!w && GetConsoleScreenBufferInfo((HANDLE)_get_osfhandle(_fileno(f)), &info))
        w = (size_t)(info.srWindow.Right - info.srWindow.Left + 1);
#elif defined(TIOCGWINSZ)
    struct winsize size;
    if (!w && isatty(fileno(f)) && ioctl(fileno(f), TIOCGWINSZ, &size) == 0) w = size.ws_col;
#endif
    return !w ? otherwise : w < 40 ? 40 : w > 1000 ? 1000 : w;
}

bool is_absolute(const char *path)
{
#if defined(_WIN32)
    if (path[0] == '\\' || (path[0] && path[1] == ':')) return true;
#endif
    return path[0] == '/';
}

bool working_directory(char *path, size_t cap)
{
#if defined(_WIN32)
    return _getcwd(path, (int)cap) != NULL;
#else
    return getcwd(path, cap) != NULL;
#endif
}

/* A checkpoint of a few thousand ranks has more files than a process may have open where nobody
   asks. */
void files_allow(void)
{
#if !defined(_WIN32)
    const rlim_t most = 65536;
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur == RLIM_INFINITY || r.rlim_cur >= most)
        return;
    r.rlim_cur = r.rlim_max == RLIM_INFINITY || r.rlim_max > most ? most : r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);        /* (without it files are closed and opened again) */
#endif
}
