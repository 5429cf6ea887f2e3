/* Five stages in plain C11 behind kvproof_port.h, float32 sums over float32 or bfloat16 tensors of any strides.
 *
 *     cc -std=c11 -O2 -shared -fPIC -o libport.so port.c -lm
 *     kvproof verify ./libport.so
 *
 * Wrong on purpose: -DBROKEN_CONTIGUOUS takes every tensor for contiguous, -DBROKEN_UNWRITTEN loses the channels past
 * the last whole vector of 32.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvproof_port.h"

/* ---- arguments by name ------------------------------------------------------------------------------------------ */

static const kvproof_argument* find(const kvproof_argument* arguments, int count, const char* name) {
    for (int i = 0; i < count; ++i)
        if (strcmp(arguments[i].name, name) == 0) return &arguments[i];
    return NULL;
}

static const DLTensor* tensor(const kvproof_argument* arguments, int count, const char* name) {
    const kvproof_argument* found = find(arguments, count, name);
    return found && found->kind == KVPROOF_TENSOR ? found->value.tensor : NULL;
}

static const DLTensor* result(const kvproof_result* results, int count, const char* name) {
    for (int i = 0; i < count; ++i)
        if (strcmp(results[i].name, name) == 0) return results[i].tensor;
    return NULL;
}

static int fail(char* message, int size, const char* text) {
    snprintf(message, (size_t)size, "%s", text);
    return KVPROOF_ERROR;
}

/* 1/sqrt(d), unless the call says otherwise. */
static float softmax_scale(const kvproof_argument* arguments, int count, int64_t d) {
    const kvproof_argument* given = find(arguments, count, "softmax_scale");
    return given && given->kind == KVPROOF_REAL ? (float)given->value.real : 1.0f / sqrtf((float)d);
}

/* ---- elements by index: the tensor's own strides and offset, never its shape ------------------------------------- */

/* The address of element [i, j, k, l]; indices past the last axis are 0. */
static char* at(const DLTensor* t, int64_t i, int64_t j, int64_t k, int64_t l) {
    const int64_t index[4] = {i, j, k, l};
    int64_t position = 0;
    for (int axis = 0; axis < t->ndim && axis < 4; ++axis)
#ifdef BROKEN_CONTIGUOUS
        position = position * t->shape[axis] + index[axis];
#else
        position += index[axis] * t->strides[axis];
#endif
    return (char*)t->data + t->byte_offset + position * (t->dtype.bits / 8);
}

static float load(const DLTensor* t, int64_t i, int64_t j, int64_t k, int64_t l) {
    float value;
    if (t->dtype.code == kDLBfloat) { /* the upper half of a float32 */
        uint16_t half;
        memcpy(&half, at(t, i, j, k, l), sizeof half);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    memcpy(&value, at(t, i, j, k, l), sizeof value);
    return value;
}

/* Rounds to nearest, ties to even, where the tensor is bfloat16. */
static void store(const DLTensor* t, float value, int64_t i, int64_t j, int64_t k, int64_t l) {
    if (t->dtype.code == kDLBfloat) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint16_t half = (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
        memcpy(at(t, i, j, k, l), &half, sizeof half);
        return;
    }
    memcpy(at(t, i, j, k, l), &value, sizeof value);
}

static int64_t load_index(const DLTensor* t, int64_t i, int64_t j) {
    int64_t value;
    memcpy(&value, at(t, i, j, 0, 0), sizeof value);
    return value;
}

static int is_readable(const DLTensor* t) {
    if (t == NULL) return 0;
    return (t->dtype.code == kDLFloat && t->dtype.bits == 32) || (t->dtype.code == kDLBfloat && t->dtype.bits == 16);
}

/* ---- attention: one KV head, its tokens contiguous [H,T,d] or behind a block table [M,B,H,d] --------------------- */

typedef struct {
    const DLTensor *keys, *values, *table; /* table NULL: contiguous */
    int64_t sequence, head, tokens;
} Memory;

static float cell(const Memory* memory, const DLTensor* where, int64_t t, int64_t i) {
    if (memory->table == NULL) return load(where, memory->head, t, i, 0);
    int64_t block_size = where->shape[1];
    int64_t block = load_index(memory->table, memory->sequence, t / block_size);
    return load(where, block, t % block_size, memory->head, i);
}

/* Replaces values by exp(value - maximum). Returns their log-sum-exp, -inf where all are; *total is their new sum. */
static float exponentials(float* values, int64_t count, float* total) {
    float top = -INFINITY;
    for (int64_t i = 0; i < count; ++i) top = fmaxf(top, values[i]);
    *total = 0.0f;
    for (int64_t i = 0; i < count; ++i) *total += values[i] = isinf(top) ? 0.0f : expf(values[i] - top);
    return isinf(top) ? -INFINITY : top + logf(*total);
}

/* How many of d channels of a row are written. */
static int64_t written(int64_t d) {
#ifdef BROKEN_UNWRITTEN
    return d / 32 * 32;
#else
    return d;
#endif
}

/* The query at [a, b, c] (c is 0 where queries has three axes) over one KV head: output there, its log-sum-exp returned.
 * `weights` has room for a number per token. */
static float attend(const DLTensor* queries, const Memory* memory, const DLTensor* output, float scale, float* weights,
                    int64_t a, int64_t b, int64_t c) {
    int last = queries->ndim == 4;
    int64_t d = queries->shape[queries->ndim - 1];
    for (int64_t t = 0; t < memory->tokens; ++t) {
        float sum = 0.0f;
        for (int64_t i = 0; i < d; ++i)
            sum += load(queries, a, b, last ? c : i, last ? i : 0) * cell(memory, memory->keys, t, i);
        weights[t] = scale * sum;
    }
    float total, lse = exponentials(weights, memory->tokens, &total);
    for (int64_t i = 0; i < written(d); ++i) {
        float sum = 0.0f;
        for (int64_t t = 0; t < memory->tokens; ++t) sum += weights[t] * cell(memory, memory->values, t, i);
        store(output, total > 0.0f ? sum / total : 0.0f, a, b, last ? c : i, last ? i : 0);
    }
    return lse;
}

/* queries [H,G,d], keys and values [H,T,d] -> output [H,G,d], lse [H,G] */
KVPROOF_STAGE(attention) {
    const DLTensor* queries = tensor(arguments, argument_count, "queries");
    Memory memory = {.keys = tensor(arguments, argument_count, "keys"),
                     .values = tensor(arguments, argument_count, "values")};
    const DLTensor *output = result(results, result_count, "output"), *lse = result(results, result_count, "lse");
    if (!is_readable(queries) || !is_readable(memory.keys) || !is_readable(memory.values) || !output || !lse)
        return fail(message, message_size, "expected float32 or bfloat16 queries, keys and values");
    memory.tokens = memory.keys->shape[1];
    float* weights = malloc(sizeof(float) * (size_t)(memory.tokens + 1));
    if (weights == NULL) return fail(message, message_size, "out of memory");
    float scale = softmax_scale(arguments, argument_count, queries->shape[2]);
    for (memory.head = 0; memory.head < queries->shape[0]; ++memory.head)
        for (int64_t g = 0; g < queries->shape[1]; ++g)
            store(lse, attend(queries, &memory, output, scale, weights, memory.head, g, 0), memory.head, g, 0, 0);
    free(weights);
    return KVPROOF_OK;
}

/* Whether every block that the first `tokens` tokens of a sequence lie in is one of the pool's. */
static int in_pool(const Memory* memory) {
    int64_t block_size = memory->keys->shape[1];
    for (int64_t t = 0; t < memory->tokens; t += block_size) {
        int64_t block = load_index(memory->table, memory->sequence, t / block_size);
        if (block < 0 || block >= memory->keys->shape[0]) return 0;
    }
    return 1;
}

/* queries [N,H,G,d], key_pool and value_pool [M,B,H,d], block_table [N,Pmax], tokens [N] -> output [N,H,G,d], lse [N,H,G] */
KVPROOF_STAGE(paged_attention) {
    const DLTensor* queries = tensor(arguments, argument_count, "queries");
    const DLTensor* lengths = tensor(arguments, argument_count, "tokens");
    Memory memory = {.keys = tensor(arguments, argument_count, "key_pool"),
                     .values = tensor(arguments, argument_count, "value_pool"),
                     .table = tensor(arguments, argument_count, "block_table")};
    const DLTensor *output = result(results, result_count, "output"), *lse = result(results, result_count, "lse");
    if (!is_readable(queries) || !is_readable(memory.keys) || !is_readable(memory.values) || !output || !lse)
        return fail(message, message_size, "expected float32 or bfloat16 queries and pools");
    if (!lengths || !memory.table) return fail(message, message_size, "expected block_table and tokens");
    float scale = softmax_scale(arguments, argument_count, queries->shape[3]);
    for (int64_t n = 0; n < queries->shape[0]; ++n) {
        memory.sequence = n;
        memory.tokens = load_index(lengths, n, 0);
        if (!in_pool(&memory)) return fail(message, message_size, "block_table: a sequence has a block outside the pool");
        float* weights = malloc(sizeof(float) * (size_t)(memory.tokens + 1));
        if (weights == NULL) return fail(message, message_size, "out of memory");
        for (int64_t h = 0; h < queries->shape[1]; ++h)
            for (int64_t g = 0; g < queries->shape[2]; ++g) {
                memory.head = h;
                store(lse, attend(queries, &memory, output, scale, weights, n, h, g), n, h, g, 0);
            }
        free(weights);
    }
    return KVPROOF_OK;
}

/* outputs [S,H,G,d], lses [S,H,G] -> output [H,G,d], lse [H,G]; a split without tokens has lse -inf */
KVPROOF_STAGE(merge_attention) {
    const DLTensor* outputs = tensor(arguments, argument_count, "outputs");
    const DLTensor* lses = tensor(arguments, argument_count, "lses");
    const DLTensor *output = result(results, result_count, "output"), *lse = result(results, result_count, "lse");
    if (!is_readable(outputs) || !is_readable(lses) || !output || !lse)
        return fail(message, message_size, "expected float32 or bfloat16 outputs and lses");
    int64_t S = outputs->shape[0], H = outputs->shape[1], G = outputs->shape[2], d = outputs->shape[3];
    float* weights = malloc(sizeof(float) * (size_t)(S + 1));
    if (weights == NULL) return fail(message, message_size, "out of memory");
    for (int64_t h = 0; h < H; ++h)
        for (int64_t g = 0; g < G; ++g) {
            float total;
            for (int64_t s = 0; s < S; ++s) weights[s] = load(lses, s, h, g, 0);
            store(lse, exponentials(weights, S, &total), h, g, 0, 0);
            for (int64_t i = 0; i < written(d); ++i) {
                float sum = 0.0f;
                for (int64_t s = 0; s < S; ++s)
                    if (weights[s] > 0.0f) sum += weights[s] * load(outputs, s, h, g, i);
                store(output, total > 0.0f ? sum / total : 0.0f, h, g, i, 0);
            }
        }
    free(weights);
    return KVPROOF_OK;
}

/* ---- Locks ------------------------------------------------------------------------------------------------------- */

/* basis_bytes [H,P,r,d/2] -> basis_codes [H,P,d,r]; the lower nibble is the even channel, two's complement */
KVPROOF_STAGE(locks_unpack_basis) {
    const DLTensor* bytes = tensor(arguments, argument_count, "basis_bytes");
    const DLTensor* codes = result(results, result_count, "basis_codes");
    if (!bytes || !codes) return fail(message, message_size, "expected basis_bytes");
    for (int64_t h = 0; h < bytes->shape[0]; ++h)
        for (int64_t p = 0; p < bytes->shape[1]; ++p)
            for (int64_t column = 0; column < bytes->shape[2]; ++column)
                for (int64_t channel = 0; channel < 2 * bytes->shape[3]; ++channel) {
                    uint8_t both = *(const uint8_t*)at(bytes, h, p, column, channel / 2);
                    int nibble = channel % 2 ? both >> 4 : both & 15;
                    *(int8_t*)at(codes, h, p, channel, column) = (int8_t)(nibble >= 8 ? nibble - 16 : nibble);
                }
    return KVPROOF_OK;
}

/* shares [H,P] -> pages [H,min(k,P)]: the first and the last page, then the largest shares, the lower page at ties */
KVPROOF_STAGE(locks_select_pages) {
    const DLTensor *shares = tensor(arguments, argument_count, "shares"), *pages = result(results, result_count, "pages");
    if (!is_readable(shares) || !pages) return fail(message, message_size, "expected float32 shares");
    int64_t P = shares->shape[1], kept = pages->shape[1];
    char* chosen = malloc((size_t)(P + 1));
    if (chosen == NULL) return fail(message, message_size, "out of memory");
    for (int64_t h = 0; h < shares->shape[0]; ++h) {
        memset(chosen, 0, (size_t)(P + 1));
        for (int64_t rank = 0; rank < kept; ++rank) {
            int64_t best = -1;
            float most = -1.0f;
            for (int64_t p = 0; p < P; ++p) {
                float share = p == 0 || p == P - 1 ? INFINITY : load(shares, h, p, 0, 0);
                if (!chosen[p] && share > most) most = share, best = p;
            }
            if (best < 0) break;
            chosen[best] = 1;
            memcpy(at(pages, h, rank, 0, 0), &best, sizeof best);
        }
    }
    free(chosen);
    return KVPROOF_OK;
}

KVPROOF_EXPORT const char* kvproof_declare(void) {
    return "{\"DTYPES\": [\"float32\", \"bfloat16\"], \"TIES\": \"lowest_index\", \"OPTIONAL\": [\"softmax_scale\"]}";
}
