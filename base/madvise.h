/* What <sys/mman.h> of glibc 2.34 lacks: advice that Linux takes since 5.14, and refuses with EINVAL before. */
#pragma once

#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
