// A reader of the JSON that kvproof writes: objects, arrays, strings, numbers, true, false, null. It checks what it
// reads and throws std::runtime_error; of escapes it knows those of ASCII.
#pragma once

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct Json {
    enum Kind { Null, Bool, Number, Text, List, Object } kind = Null;
    double number = 0;
    std::string text;
    std::vector<Json> list;
    std::map<std::string, Json> object;

    bool has(const std::string& key) const {
        auto found = object.find(key);
        return found != object.end() && found->second.kind != Null;
    }

    const Json& at(const std::string& key) const {
        auto found = object.find(key);
        if (found == object.end()) throw std::runtime_error("JSON: no key " + key);
        return found->second;
    }
};

class JsonReader {
  public:
    explicit JsonReader(const std::string& source) : source_(source) {}

    Json read() {
        Json value = any();
        if (peek() != '\0') fail("the end");
        return value;
    }

  private:
    [[noreturn]] void fail(const std::string& wanted) const {
        throw std::runtime_error("JSON: expected " + wanted + " at byte " + std::to_string(at_));
    }

    char peek() {
        while (at_ < source_.size() && (source_[at_] == ' ' || source_[at_] == '\n' || source_[at_] == '\t' ||
                                        source_[at_] == '\r'))
            ++at_;
        return at_ < source_.size() ? source_[at_] : '\0';
    }

    void take(char wanted) {
        if (peek() != wanted) fail(std::string(1, wanted));
        ++at_;
    }

    bool word(const std::string& wanted) {
        if (source_.compare(at_, wanted.size(), wanted) != 0) return false;
        at_ += wanted.size();
        return true;
    }

    Json any() {
        Json value;
        char next = peek();
        if (next == '{') {
            value.kind = Json::Object;
            members('}', [&] {
                std::string key = text();
                take(':');
                value.object[key] = any();
            });
        } else if (next == '[') {
            value.kind = Json::List;
            members(']', [&] { value.list.push_back(any()); });
        } else if (next == '"') {
            value.kind = Json::Text;
            value.text = text();
        } else if (word("null")) {
            value.kind = Json::Null;
        } else if (next == 't' || next == 'f') {
            value.kind = Json::Bool;
            value.number = word("true") ? 1 : 0;
            if (value.number == 0 && !word("false")) fail("true or false");
        } else {
            value.kind = Json::Number;
            const char* begin = source_.c_str() + at_;
            char* end = nullptr;
            value.number = std::strtod(begin, &end);
            if (end == begin) fail("a value");
            at_ += static_cast<size_t>(end - begin);
        }
        return value;
    }

    template <class Member>
    void members(char close, Member member) {
        ++at_;
        if (peek() == close) {
            ++at_;
            return;
        }
        for (;;) {
            member();
            if (peek() != ',') break;
            ++at_;
        }
        take(close);
    }

    std::string text() {
        take('"');
        std::string value;
        while (at_ < source_.size() && source_[at_] != '"') {
            if (source_[at_] == '\\') {
                char escape = ++at_ < source_.size() ? source_[at_] : '\0';
                if (escape == 'n') value += '\n';
                else if (escape == 't') value += '\t';
                else if (escape == '"' || escape == '\\' || escape == '/') value += escape;
                else fail("a simple escape");
                ++at_;
            } else {
                value += source_[at_++];
            }
        }
        take('"');
        return value;
    }

    const std::string& source_;
    size_t at_ = 0;
};
