/* fill.h - who fills which entries of the kernel table. Internal to src/kernel.
 *
 *      kernels_fill_scalar: product_fill_scalar, vector_fill_scalar, attend_fill_scalar   all entries
 *      kernels_fill_avx2:   product_fill_avx2,   vector_fill_avx2,   attend_fill_avx2     over a copy of that table
 *      kernels_fill_avx512: product_fill_avx512, vector_fill_avx512, attend_fill_avx512   over a copy of that one
 *
 * Files named *_avx2.c are compiled with -mavx2 -mfma -mf16c, *_avx512.c with -mavx512{f,bw,vl,dq,vnni} on top, all
 * others with neither; they are empty where the target isn't x86-64. kernels.c alone knows which fills exist on this
 * target.
 */
#ifndef KVASIR_KERNEL_FILL_H
#define KVASIR_KERNEL_FILL_H

#include "kernel/kernel.h"

/* panel_bytes, pack, unpack_row, quantize, product, product_exact */
void product_fill_scalar(kernels *k);
void product_fill_avx2(kernels *k);
void product_fill_avx512(kernels *k); /* product of the quantized types */

/* rms_norm, add, scale, silu_mul, gelu_mul, softcap, rope, to_half */
void vector_fill_scalar(kernels *k);
void vector_fill_avx2(kernels *k);
void vector_fill_avx512(kernels *k); /* all but rope and to_half */

/* attend_f32, attend_f16, merge */
void attend_fill_scalar(kernels *k);
void attend_fill_avx2(kernels *k);
void attend_fill_avx512(kernels *k); /* attend_f32, attend_f16 */

#endif
