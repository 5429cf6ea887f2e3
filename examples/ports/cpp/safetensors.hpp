// Safetensors: eight bytes of length (little-endian), a JSON header, then the tensors' bytes. Assumes a little-endian
// machine, as every target of this example is.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "json.hpp"

struct Tensor {
    std::string dtype;  // as the file names it: F32, F64, I64, I8, U8, U16
    std::vector<int64_t> shape;
    std::vector<char> bytes;

    int64_t size() const {
        int64_t count = 1;
        for (int64_t extent : shape) count *= extent;
        return count;
    }

    // Every element as T; U16 holds bf16 bit patterns, the upper halves of float32.
    template <class T>
    std::vector<T> as() const {
        std::vector<T> values(static_cast<size_t>(size()));
        for (size_t i = 0; i < values.size(); ++i) {
            if (dtype == "F32") values[i] = static_cast<T>(get<float>(i));
            else if (dtype == "F64") values[i] = static_cast<T>(get<double>(i));
            else if (dtype == "I64") values[i] = static_cast<T>(get<int64_t>(i));
            else if (dtype == "I8") values[i] = static_cast<T>(get<int8_t>(i));
            else if (dtype == "U8") values[i] = static_cast<T>(get<uint8_t>(i));
            else if (dtype == "U16") values[i] = static_cast<T>(from_bfloat16(get<uint16_t>(i)));
            else throw std::runtime_error("dtype " + dtype + " is not supported");
        }
        return values;
    }

  private:
    template <class T>
    T get(size_t i) const {
        T value;
        if ((i + 1) * sizeof(T) > bytes.size()) throw std::runtime_error("a tensor is shorter than its shape");
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        return value;
    }

    static float from_bfloat16(uint16_t half) {
        uint32_t bits = static_cast<uint32_t>(half) << 16;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
};

using Tensors = std::map<std::string, Tensor>;

template <class T>
Tensor make_tensor(const char* dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
    Tensor tensor{dtype, std::move(shape), std::vector<char>(values.size() * sizeof(T))};
    if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    return tensor;
}

inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) throw std::runtime_error("cannot read " + path.string());
    return std::string(std::istreambuf_iterator<char>(stream), {});
}

inline Tensors read_tensors(const std::filesystem::path& path) {
    std::string content = read_file(path);
    uint64_t length = 0;
    if (content.size() < 8) throw std::runtime_error(path.string() + " is truncated");
    std::memcpy(&length, content.data(), 8);
    if (length > content.size() - 8) throw std::runtime_error(path.string() + " is truncated");
    std::string header = content.substr(8, length);
    Tensors tensors;
    for (const auto& [name, entry] : JsonReader(header).read().object) {
        if (name == "__metadata__") continue;
        Tensor& tensor = tensors[name];
        tensor.dtype = entry.at("dtype").text;
        for (const Json& extent : entry.at("shape").list) tensor.shape.push_back(static_cast<int64_t>(extent.number));
        size_t begin = static_cast<size_t>(entry.at("data_offsets").list.at(0).number);
        size_t end = static_cast<size_t>(entry.at("data_offsets").list.at(1).number);
        if (begin > end || 8 + length + end > content.size()) throw std::runtime_error(path.string() + " is truncated");
        tensor.bytes.assign(content.begin() + static_cast<long>(8 + length + begin),
                            content.begin() + static_cast<long>(8 + length + end));
    }
    return tensors;
}

// Written beside its final name and renamed, so that a reader never sees half a file.
inline void write_tensors(const std::filesystem::path& path, const Tensors& tensors) {
    std::string header = "{", data;
    for (const auto& [name, tensor] : tensors) {
        std::string shape;
        for (int64_t extent : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
        header += (header.size() > 1 ? "," : "") + ("\"" + name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[") +
                  shape + "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
        data.append(tensor.bytes.begin(), tensor.bytes.end());
        header += std::to_string(data.size()) + "]}";
    }
    header += "}";
    header.append((8 - header.size() % 8) % 8, ' ');
    uint64_t length = header.size();
    std::filesystem::path partial = path;
    partial += ".partial";
    std::ofstream stream(partial, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(&length), 8);
    stream << header << data;
    stream.close();
    if (!stream) throw std::runtime_error("cannot write " + partial.string());
    std::filesystem::rename(partial, path);
}
