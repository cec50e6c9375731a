// A function marked TRIREME_VECTORIZED is compiled for AVX-512, for AVX2 and for baseline x86-64;
// the dynamic loader picks one version. Everything that it calls must be inlined into it: mark
// helper functions TRIREME_INLINE, and move the body of a parallel_for into a separate function.
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TRIREME_VECTORIZED \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else  // sanitizers crash in the resolver, which runs before their initialization
#define TRIREME_VECTORIZED
#endif
#define TRIREME_INLINE __attribute__((always_inline))
