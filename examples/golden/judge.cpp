// Judges one stage by the golden files alone, with nothing but a JSON and a safetensors reader: every stored case of
// merge_attention is answered by merge_attention of ../ports/cpp/stages.hpp and compared with what is stored beside it.
//
//     g++ -std=c++17 -O2 -o judge judge.cpp && ./judge ../../fixtures/golden
//
// Exit 0: all within their bounds. 1: one line per wrong result. 2: a file cannot be read. -DBROKEN_BASE2_MERGE builds a
// stage that is wrong on purpose.
#include <iostream>

#include "../ports/cpp/stages.hpp"

namespace fs = std::filesystem;
using Doubles = std::vector<double>;

static const char kStage[] = "merge_attention";
static const char kDtype[] = "float32";

// What is wrong with a result, or nothing: rule equal, or |answer - expected| <= bound; finite where that is expected.
static std::string fault(const std::string& name, const std::string& rule, const Tensor& answer, const Tensors& stored) {
    Tensor expected = stored.at("expected/" + name);
    if (answer.shape != expected.shape) return "has another shape";
    Doubles got = answer.as<double>(), want = expected.as<double>(), bound(want.size());
    if (rule == "within") {
        auto shared = stored.find("bound/" + name);  // one tensor for all dtypes, or one each
        bound = (shared != stored.end() ? shared->second : stored.at("bound/" + name + "/" + kDtype)).as<double>();
    } else if (rule != "equal") {
        throw std::runtime_error("the rule " + rule + " is not read here");
    }
    for (size_t i = 0; i < want.size(); ++i) {
        bool right = got[i] == want[i] || (std::isfinite(got[i]) && std::abs(got[i] - want[i]) <= bound[i]);
        if (!right)
            return "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", expected " +
                   std::to_string(want[i]) + " within " + std::to_string(bound[i]);
    }
    return "";
}

int main(int count, char** words) {
    if (count != 2) return std::cerr << "usage: judge GOLDEN_FOLDER\n", 2;
    try {
        int checked = 0, wrong = 0;
        std::string text = read_file(fs::path(words[1]) / "manifest.json");
        const Json manifest = JsonReader(text).read();
        for (const Json& entry : manifest.at("cases").list) {
            if (entry.at("stage").text != kStage) continue;
            Tensors stored = read_tensors(fs::path(words[1]) / entry.at("file").text), inputs;
            for (const auto& [name, tensor] : stored)
                if (name.rfind("inputs/", 0) == 0) inputs[name.substr(7)] = tensor;
            Tensors answer = merge_attention(inputs, entry.at("arguments"));
            for (const auto& [name, about] : entry.at("results").object) {
                std::string problem = fault(name, about.at("rule").text, answer.at(name), stored);
                if (!problem.empty()) std::cout << "FAIL " << entry.at("id").text << ": " << name << " " << problem << "\n";
                wrong += !problem.empty();
            }
            ++checked;
        }
        std::cout << checked << " cases checked, " << wrong << " wrong\n";
        return wrong || !checked ? 1 : 0;
    } catch (const std::exception& error) {
        return std::cerr << "judge: " << error.what() << "\n", 2;
    }
}
