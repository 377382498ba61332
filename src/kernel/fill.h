/* fill.h - who fills which entries of the kernel table. Internal to src/kernel; called by kernels.c alone, once.
 *
 *      scalar   product_fill_scalar, vector_fill_scalar, attend_fill_scalar   all entries
 *      avx2     product_fill_avx2,   vector_fill_avx2,   attend_fill_avx2     over a copy of the scalar table
 *      avx512   product_fill_avx512, vector_fill_avx512, attend_fill_avx512   over a copy of that of avx2
 *      neon     product_fill_neon,   vector_fill_neon,   attend_fill_neon     over a copy of the scalar table
 *      dotprod  product_fill_dotprod                                          over a copy of that of neon
 *
 * Files named *_avx2.c are compiled with -mavx2 -mfma -mf16c, *_avx512.c with -mavx512{f,bw,vl,dq,vnni} on top,
 * *_dotprod.c with -march=armv8.2-a+dotprod, all others with what every processor of the target has. Those for another
 * target are empty.
 */
#ifndef KVASIR_KERNEL_FILL_H
#define KVASIR_KERNEL_FILL_H

#include "kernel/kernel.h"

/* panel_bytes, pack, unpack_row, quantize, product, product_exact */
void product_fill_scalar(kernels *k);
void product_fill_avx2(kernels *k);
void product_fill_avx512(kernels *k);  /* product of the quantized types */
void product_fill_neon(kernels *k);    /* quantize, product, product_exact */
void product_fill_dotprod(kernels *k); /* product of the quantized types */

/* rms_norm, add, scale, silu_mul, gelu_mul, softcap, rope, to_half, span_max, sum_exp, sum_exp_f32, find_between */
void vector_fill_scalar(kernels *k);
void vector_fill_avx2(kernels *k);
void vector_fill_avx512(kernels *k); /* rms_norm to softcap, sum_exp_f32 */
void vector_fill_neon(kernels *k); /* all but find_between */

/* attend_f32, attend_f16, merge */
void attend_fill_scalar(kernels *k);
void attend_fill_avx2(kernels *k);
void attend_fill_avx512(kernels *k); /* attend_f32, attend_f16 */
void attend_fill_neon(kernels *k);

#endif
