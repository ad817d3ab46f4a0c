#pragma once
typedef struct { long long part[16]; } jmp_buf[1];
