/* A compiled port in C, C++, Rust, ...: a shared library that `kvproof verify ./libmyport.so` loads and judges.
 *
 * For every stage that it has, the library exports one function of type `kvproof_stage_function`, named kvproof_<stage>
 * (`kvproof list` prints the stages, their arguments and results):
 *
 *     int kvproof_attention(const kvproof_argument* arguments, int argument_count,
 *                           const kvproof_result* results, int result_count, char* message, int message_size);
 *
 * Arguments and results come in the stage table's order and carry its names, a list as name_0, name_1, ... Tensors are
 * DLPack's DLTensor:
 *   - strides count elements, are never NULL, and need not be those of a contiguous tensor: views into larger buffers
 *     and halves of one buffer are part of the judgement, and so is byte_offset, which is then not 0;
 *   - element [i, j] lies at (char*)data + byte_offset + (i * strides[0] + j * strides[1]) * bits / 8;
 *   - data of a fresh tensor is aligned to 256 bytes (that of a view plus byte_offset need not be); a tensor without
 *     elements has data NULL;
 *   - bfloat16 has dtype {kDLBfloat (4), 16, 1}.
 * Results are allocated, contiguous, and hold poison: write every element, and nothing beside them. Arguments must not
 * be changed. Everything belongs to the caller and is valid until the function returns.
 *
 * Return KVPROOF_OK; KVPROOF_NOT_IMPLEMENTED for parameters that the port does not do (the case counts as not
 * provided); any other number for an error. What is written into `message` (message_size bytes, NUL included) is shown.
 *
 * Optional: const char* kvproof_declare(void) returns the port's constants as a JSON object, such as
 *     {"DTYPES": ["float32", "bfloat16"], "ACCUMULATE": "float32", "OPTIONAL": ["softmax_scale"]}
 * with the words of docs/verify-your-port.md; OPTIONAL names the optional arguments that the port takes.
 *
 * C++ needs no more than this header, which gives its declarations C linkage. Whoever includes DLPack's own dlpack.h
 * first gets its types.
 */
#ifndef KVPROOF_PORT_H
#define KVPROOF_PORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_DLPACK_H_ /* the guard of DLPack's header, whose layout this is */
enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4 };
enum { kDLCPU = 1, kDLCUDA = 2 };

typedef struct {
    int32_t device_type;
    int32_t device_id;
} DLDevice;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void* data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t* shape;
    int64_t* strides;
    uint64_t byte_offset;
} DLTensor;
#endif

enum { KVPROOF_OK = 0, KVPROOF_NOT_IMPLEMENTED = 1, KVPROOF_ERROR = 2 };

/* Which member of the union an argument holds. KVPROOF_NONE is Python's None: no member. */
enum { KVPROOF_NONE = 0, KVPROOF_TENSOR = 1, KVPROOF_INTEGER = 2, KVPROOF_REAL = 3, KVPROOF_STRING = 4 };

typedef struct {
    const char* name;
    int32_t kind;
    union {
        const DLTensor* tensor;
        int64_t integer;
        double real;
        const char* string; /* UTF-8 */
    } value;
} kvproof_argument;

typedef struct {
    const char* name;
    const DLTensor* tensor;
} kvproof_result;

typedef int (*kvproof_stage_function)(const kvproof_argument* arguments, int argument_count,
                                      const kvproof_result* results, int result_count,
                                      char* message, int message_size);

/* Declares a stage with C linkage, visible in the library: KVPROOF_STAGE(attention) { ...; return KVPROOF_OK; } */
#define KVPROOF_STAGE(stage)                                                                                  \
    KVPROOF_EXPORT int kvproof_##stage(const kvproof_argument* arguments, int argument_count,                 \
                                       const kvproof_result* results, int result_count, char* message,        \
                                       int message_size)
#ifdef __cplusplus
#define KVPROOF_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define KVPROOF_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
}
#endif
#endif
