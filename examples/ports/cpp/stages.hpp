// Five stages in plain float32 C++, one function each, named as the stage. Shapes are those of docs/notation.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "safetensors.hpp"

using Floats = std::vector<float>;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

inline float softmax_scale(const Json& arguments, int64_t d) {
    if (arguments.has("softmax_scale")) return static_cast<float>(arguments.at("softmax_scale").number);
    return 1.0f / std::sqrt(static_cast<float>(d));
}

inline float dot(const float* left, const float* right, int64_t count) {
    return std::inner_product(left, left + count, right, 0.0f);
}

// log(sum(exp(values))), and the values replaced by exp(value - maximum); -inf where there is nothing to sum.
inline float exponentials(Floats& values, float& total) {
    float top = kMinusInfinity;
    for (float value : values) top = std::max(top, value);
    total = 0;
    for (float& value : values) total += value = std::isinf(top) ? 0.0f : std::exp(value - top);
    return std::isinf(top) ? kMinusInfinity : top + std::log(total);
}

// queries [H,G,d], keys and values [H,T,d] -> output [H,G,d], lse [H,G]
inline Tensors attention(const Tensors& in, const Json& arguments) {
    const auto& shape = in.at("queries").shape;
    int64_t H = shape[0], G = shape[1], d = shape[2], T = in.at("keys").shape[1];
    Floats queries = in.at("queries").as<float>(), keys = in.at("keys").as<float>(), values = in.at("values").as<float>();
    Floats output(static_cast<size_t>(H * G * d)), lse(static_cast<size_t>(H * G)), weights(static_cast<size_t>(T));
    float scale = softmax_scale(arguments, d);
    for (int64_t row = 0; row < H * G; ++row) {
#ifdef BROKEN_HEAD_MAP  // KV heads tiled over the query heads instead of repeated
        int64_t h = row % H;
#else
        int64_t h = row / G;
#endif
        for (int64_t t = 0; t < T; ++t)
            weights[size_t(t)] = scale * dot(&queries[size_t(row * d)], &keys[size_t((h * T + t) * d)], d);
        float total = 0;
        lse[size_t(row)] = exponentials(weights, total);
        for (int64_t t = 0; t < T; ++t)
            for (int64_t i = 0; i < d; ++i)
                output[size_t(row * d + i)] += weights[size_t(t)] / total * values[size_t((h * T + t) * d + i)];
    }
    return {{"output", make_tensor("F32", shape, output)}, {"lse", make_tensor("F32", {H, G}, lse)}};
}

// outputs [S,H,G,d], lses [S,H,G] -> output [H,G,d], lse [H,G]; a split without tokens has lse -inf
inline Tensors merge_attention(const Tensors& in, const Json&) {
    const auto& shape = in.at("outputs").shape;
    int64_t S = shape[0], rows = shape[1] * shape[2], d = shape[3];
    Floats outputs = in.at("outputs").as<float>(), lses = in.at("lses").as<float>();
    Floats output(static_cast<size_t>(rows * d)), lse(static_cast<size_t>(rows)), weights(static_cast<size_t>(S));
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t s = 0; s < S; ++s) {
            weights[size_t(s)] = lses[size_t(s * rows + row)];
#ifdef BROKEN_BASE2_MERGE  // log-masses in nats read as if they were in bits
            weights[size_t(s)] *= 0.693147181f;
#endif
        }
        float total = 0;
        lse[size_t(row)] = exponentials(weights, total);
        for (int64_t s = 0; s < S; ++s)
            for (int64_t i = 0; i < d && weights[size_t(s)] > 0; ++i)
                output[size_t(row * d + i)] += weights[size_t(s)] / total * outputs[size_t((s * rows + row) * d + i)];
    }
    return {{"output", make_tensor("F32", {shape[1], shape[2], d}, output)},
            {"lse", make_tensor("F32", {shape[1], shape[2]}, lse)}};
}

// basis_bytes [H,P,r,d/2] -> basis_codes [H,P,d,r]; the lower nibble is the even channel, two's complement
inline Tensors locks_unpack_basis(const Tensors& in, const Json&) {
    const auto& shape = in.at("basis_bytes").shape;
    int64_t pages = shape[0] * shape[1], r = shape[2], half = shape[3];
    auto packed = in.at("basis_bytes").as<uint8_t>();
    std::vector<int8_t> codes(static_cast<size_t>(pages * r * half * 2));
    for (int64_t page = 0; page < pages; ++page)
        for (int64_t column = 0; column < r; ++column)
            for (int64_t channel = 0; channel < 2 * half; ++channel) {
                uint8_t both = packed[size_t((page * r + column) * half + channel / 2)];
                int nibble = channel % 2 ? both >> 4 : both & 15;
                codes[size_t((page * 2 * half + channel) * r + column)] = int8_t(nibble >= 8 ? nibble - 16 : nibble);
            }
    return {{"basis_codes", make_tensor("I8", {shape[0], shape[1], 2 * half, r}, codes)}};
}

// queries [H,G,d], centroid [H,P,d], basis [H,P,d,r], coefficients [H,P,B,r] -> scores [H,G,P] (natural log)
inline Tensors locks_score_pages(const Tensors& in, const Json& arguments) {
    const auto& shape = in.at("coefficients").shape;
    int64_t H = shape[0], P = shape[1], B = shape[2], r = shape[3];
    int64_t G = in.at("queries").shape[1], d = in.at("queries").shape[2];
    Floats queries = in.at("queries").as<float>(), centroid = in.at("centroid").as<float>();
    Floats basis = in.at("basis").as<float>(), coefficients = in.at("coefficients").as<float>();
    Floats scores(static_cast<size_t>(H * G * P)), logits(static_cast<size_t>(B)), projected(static_cast<size_t>(r));
    float scale = softmax_scale(arguments, d);
    for (int64_t row = 0; row < H * G; ++row)
        for (int64_t p = 0; p < P; ++p) {
            int64_t page = row / G * P + p;
            const float* query = &queries[size_t(row * d)];
            std::fill(projected.begin(), projected.end(), 0.0f);
            for (int64_t i = 0; i < d; ++i)
                for (int64_t j = 0; j < r; ++j) projected[size_t(j)] += query[i] * basis[size_t((page * d + i) * r + j)];
            float middle = dot(query, &centroid[size_t(page * d)], d);
            for (int64_t b = 0; b < B; ++b)
                logits[size_t(b)] =
                    scale * (middle + dot(projected.data(), coefficients.data() + (page * B + b) * r, r));
            float total = 0;
            scores[size_t(row * P + p)] = exponentials(logits, total);
        }
    return {{"scores", make_tensor("F32", {H, G, P}, scores)}};
}

// shares [H,P] -> pages [H,min(k,P)], the first and the last page among them, then the largest shares
inline Tensors locks_select_pages(const Tensors& in, const Json& arguments) {
    int64_t H = in.at("shares").shape[0], P = in.at("shares").shape[1];
    int64_t budget = static_cast<int64_t>(arguments.at("budget_tokens").number);
    int64_t page_size = static_cast<int64_t>(arguments.at("page_size").number);
    int64_t kept = std::min(P, (budget + page_size - 1) / page_size);
    Floats shares = in.at("shares").as<float>();
    std::vector<int64_t> pages;
    for (int64_t h = 0; h < H; ++h) {
        std::vector<int64_t> order(static_cast<size_t>(P));
        std::iota(order.begin(), order.end(), int64_t{0});
        auto key = [&](int64_t p) {
            bool forced = p == 0 || p == P - 1;
            return forced ? std::numeric_limits<float>::infinity() : shares[size_t(h * P + p)];
        };
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) > key(b); });
        std::sort(order.begin(), order.begin() + kept);
        pages.insert(pages.end(), order.begin(), order.begin() + kept);
    }
    return {{"pages", make_tensor("I64", {H, kept}, pages)}};
}
