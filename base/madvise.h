/* What <sys/mman.h> of older glibc lacks: advice that Linux takes since 5.14, and 6.1 for MADV_COLLAPSE, and refuses with EINVAL before. */
#pragma once

#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
