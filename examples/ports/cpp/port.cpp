// Answers a folder that `kvproof cases DIR` wrote: for every call of a stage that it has, outputs.safetensors is written
// beside inputs.safetensors.
//
//     g++ -std=c++17 -O2 -o port port.cpp && ./port DIR && kvproof judge DIR
//
// -DBROKEN_HEAD_MAP and -DBROKEN_BASE2_MERGE build ports that are wrong on purpose.

#include <iostream>

#include "stages.hpp"

namespace fs = std::filesystem;

using Stage = Tensors (*)(const Tensors&, const Json&);

static const std::map<std::string, Stage> kStages = {
    {"attention", attention},
    {"merge_attention", merge_attention},
    {"locks_unpack_basis", locks_unpack_basis},
    {"locks_score_pages", locks_score_pages},
    {"locks_select_pages", locks_select_pages},
};

static bool answer(const fs::path& folder) {
    std::string text = read_file(folder / "call.json");
    Json call = JsonReader(text).read();
    auto stage = kStages.find(call.at("stage").text);
    std::string dtype = call.at("dtype").text;
    if (stage == kStages.end() || (dtype != "float32" && dtype != "bfloat16")) return false;
    Tensors inputs = read_tensors(folder / "inputs.safetensors");
    write_tensors(folder / "outputs.safetensors", stage->second(inputs, call.at("arguments")));
    return true;
}

int main(int count, char** words) {
    if (count != 2) {
        std::cerr << "usage: port DIR\n";
        return 2;
    }
    try {
        int answered = 0;
        for (const auto& stage : fs::directory_iterator(words[1]))
            if (stage.is_directory())
                for (const auto& folder : fs::directory_iterator(stage.path())) answered += answer(folder.path());
        std::cout << answered << " calls answered\n";
    } catch (const std::exception& error) {
        std::cerr << "port: " << error.what() << "\n";
        return 1;
    }
}
