#include "emulation/machine.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>

#include "emulation/fiber.h"

namespace fw::emulation {

Running running;

namespace {

// Who touched an LDS element in an epoch, besides a thread's number.
constexpr int16_t SEVERAL = -2, ADDERS = -3;

enum class State : uint8_t { READY, AT_WAVE, AT_BLOCK, DONE };

std::map<std::pair<std::string, int>, Kernel>& kernels() {
  static std::map<std::pair<std::string, int>, Kernel> all;
  return all;
}

class Machine {
 public:
  void launch(const Kernel& kernel, Dim grid, const void* parameters, uint64_t seed);
  void pause(State state);
  const uint64_t* exchange(uint64_t value);
  Lds& shared_array(const void* key, const char* name, int count, int element_bytes);
  Lds& alias_array(Lds& of, const void* key, const char* name, int count, int element_bytes);
  void watch(Lds& array, int index, Access access);
  [[noreturn]] void fail(const std::string& what);

 private:
  static void thread_main();
  void run_block();
  bool release_barrier();
  void run_wave(int wave);
  State* wave_states(int wave) { return &states_[wave * kernel_->wave]; }
  std::string place() const;
  void race(const Lds& array, int index, const char* what, int other);
  Lds& add_array(const void* key, const char* name, int count, int element_bytes, char* data);
  void look_for_race(const Lds& array, int index, Access access, int16_t writer);

  const Kernel* kernel_ = nullptr;
  const void* parameters_ = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<State> states_;
  std::vector<uint64_t> values_[2];  // what lanes put up, in turn
  std::vector<unsigned> turns_;      // of each wave
  std::vector<std::unique_ptr<Lds>> arrays_;
  std::vector<std::unique_ptr<char[]>> memory_;
  std::vector<std::unique_ptr<Cell[]>> cells_;
  int lds_used_ = 0;
  uint32_t epoch_ = 0, block_epoch_ = 0;
  std::mt19937_64 order_;
  std::string error_;
};

Machine machine;

void Machine::thread_main() {
  machine.kernel_->body(machine.parameters_);
  machine.states_[running.thread] = State::DONE;
}

std::string Machine::place() const {
  const Dim& b = running.block;
  return std::string(kernel_->name) + ", wave " + std::to_string(running.wave) + ", block " +
         std::to_string(b.x) + " " + std::to_string(b.y) + " " + std::to_string(b.z) +
         ", thread " + std::to_string(running.thread) + ": ";
}

void Machine::fail(const std::string& what) {
  if (error_.empty()) error_ = place() + what;
  fibers_[running.thread].leave();  // for good: its stack is used anew by the next launch
  __builtin_unreachable();
}

void Machine::pause(State state) {
  const int self = running.thread;
  states_[self] = state;
  fibers_[self].leave();
  running.thread = self;
}

const uint64_t* Machine::exchange(uint64_t value) {
  const int wave = running.thread / kernel_->wave;
  // Two sets in turn: a lane that runs ahead to the next exchange doesn't disturb this one.
  auto& values = values_[turns_[wave] & 1];
  values[running.thread] = value;
  pause(State::AT_WAVE);
  return &values[wave * kernel_->wave];
}

// Each lane runs until it waits; then, if the wave exchanges values, all of it has to.
void Machine::run_wave(int wave) {
  State* states = wave_states(wave);
  const int lanes = kernel_->wave;
  for (int i = 0; i < lanes; i++)
    if (states[i] == State::READY) {
      running.thread = wave * lanes + i;
      fibers_[running.thread].enter();
      if (!error_.empty()) return;
    }
  const auto waiting = std::count(states, states + lanes, State::AT_WAVE);
  if (!waiting) return;
  if (waiting != lanes) {
    running.thread = wave * lanes + int(std::find(states, states + lanes, State::AT_WAVE) - states);
    error_ = place() + "a wave operation that only " + std::to_string(waiting) + " of " +
             std::to_string(lanes) + " lanes reach";
    return;
  }
  turns_[wave]++;
  std::fill(states, states + lanes, State::READY);
}

// False when the block has ended.
bool Machine::release_barrier() {
  const auto done = std::count(states_.begin(), states_.end(), State::DONE);
  if (done == kernel_->threads) return false;
  if (done) {
    running.thread =
        int(std::find(states_.begin(), states_.end(), State::AT_BLOCK) - states_.begin());
    error_ = place() + "a barrier that " + std::to_string(done) + " of " +
             std::to_string(kernel_->threads) + " threads never reach";
    return false;
  }
  epoch_++;
  std::fill(states_.begin(), states_.end(), State::READY);
  return true;
}

void Machine::run_block() {
  const int waves = kernel_->threads / kernel_->wave;
  arrays_.clear();
  lds_used_ = 0;
  block_epoch_ = ++epoch_;
  for (int t = 0; t < kernel_->threads; t++) fibers_[t].start(thread_main);
  std::fill(states_.begin(), states_.end(), State::READY);
  std::vector<int> ready;
  do {
    ready.resize(waves);
    std::iota(ready.begin(), ready.end(), 0);
    while (!ready.empty()) {
      const size_t pick = order_() % ready.size();
      const int wave = ready[pick];
      run_wave(wave);
      if (!error_.empty()) return;
      if (*wave_states(wave) != State::READY) {
        ready[pick] = ready.back();
        ready.pop_back();
      }
    }
  } while (release_barrier());
}

void Machine::launch(const Kernel& kernel, Dim grid, const void* parameters, uint64_t seed) {
  kernel_ = &kernel;
  parameters_ = parameters;
  error_.clear();
  order_.seed(seed);
  if (fibers_.size() < (size_t)kernel.threads) fibers_.resize(kernel.threads);
  states_.resize(kernel.threads);
  for (auto& values : values_) values.resize(kernel.threads);
  turns_.assign(kernel.threads / kernel.wave, 0);
  std::vector<int> blocks((size_t)grid.x * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), order_);
  for (int b : blocks) {
    running = {0, kernel.threads, kernel.wave, {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y}};
    run_block();
    if (!error_.empty()) throw std::runtime_error(error_);
  }
}

Lds& Machine::shared_array(const void* key, const char* name, int count, int element_bytes) {
  for (auto& array : arrays_)
    if (array->key == key) return *array;
  const int bytes = (count * element_bytes + 15) / 16 * 16;
  lds_used_ += bytes;
  if (lds_used_ > LDS_LIMIT)
    fail(std::string("LDS array ") + name + " brings the block to " + std::to_string(lds_used_) +
         " bytes of LDS, more than " + std::to_string(LDS_LIMIT));
  return add_array(key, name, count, element_bytes, nullptr);
}

Lds& Machine::alias_array(Lds& of, const void* key, const char* name, int count, int element_bytes) {
  for (auto& array : arrays_)
    if (array->key == key) return *array;
  if (count * element_bytes > of.count * of.element_bytes)
    fail(std::string("LDS array ") + name + " is larger than " + of.name + ", whose memory it takes");
  Lds& alias = add_array(key, name, count, element_bytes, of.data);
  alias.other = &of;
  of.other = &alias;
  return alias;
}

Lds& Machine::add_array(const void* key, const char* name, int count, int element_bytes, char* data) {
  const size_t n = arrays_.size();
  if (memory_.size() <= n) {
    memory_.emplace_back(new char[LDS_LIMIT]);
    cells_.emplace_back(new Cell[LDS_LIMIT / 2]);
  }
  arrays_.emplace_back(new Lds{key, name, count, element_bytes, data ? data : memory_[n].get(), cells_[n].get()});
  return *arrays_.back();
}

void Machine::race(const Lds& array, int index, const char* what, int other) {
  const std::string who = other == SEVERAL   ? "several threads"
                          : other == ADDERS ? "additions"
                                            : "thread " + std::to_string(other);
  fail(std::string("a race in LDS: ") + array.name + "[" + std::to_string(index) + "] is " + what +
       " " + who + " since the last barrier");
}

void Machine::look_for_race(const Lds& array, int index, Access access, int16_t writer) {
  const Cell& cell = array.cells[index];
  const auto self = (int16_t)running.thread;
  if (cell.written == epoch_ && cell.writer != self && cell.writer != writer)
    race(array, index, access == Access::READ ? "read, but written by" : "written, as it is by",
         cell.writer);
  if (access != Access::READ && cell.read == epoch_ && cell.reader != self)
    race(array, index, "written, but read by", cell.reader);
}

void Machine::watch(Lds& array, int index, Access access) {
  if (index < 0 || index >= array.count)
    fail(std::string("LDS index ") + std::to_string(index) + " outside of " + array.name + "[" +
         std::to_string(array.count) + "]");
  Cell& cell = array.cells[index];
  const auto self = (int16_t)running.thread;
  if (access != Access::WRITE && cell.written < block_epoch_)
    fail(std::string("LDS ") + array.name + "[" + std::to_string(index) +
         "] is read before it was written");
  const int16_t writer = access == Access::ADD ? ADDERS : self;
  look_for_race(array, index, access, writer);
  if (array.other) {
    const int first = index * array.element_bytes, last = first + array.element_bytes - 1;
    for (int i = first / array.other->element_bytes; i <= last / array.other->element_bytes; i++)
      if (i < array.other->count) look_for_race(*array.other, i, access, writer);
  }
  if (access == Access::READ) {
    cell.reader = cell.read == epoch_ && cell.reader != self ? SEVERAL : self;
    cell.read = epoch_;
  } else {
    cell.writer = writer;
    cell.written = epoch_;
  }
}

std::mutex one_launch;

}  // namespace

Registration::Registration(const Kernel& kernel) {
  kernels()[{kernel.name, kernel.wave}] = kernel;
}

const Kernel* find_kernel(const std::string& name, int wave) {
  auto found = kernels().find({name, wave});
  return found == kernels().end() ? nullptr : &found->second;
}

void launch(const Kernel& kernel, Dim grid, const void* parameters, uint64_t seed) {
  const std::lock_guard<std::mutex> lock(one_launch);
  machine.launch(kernel, grid, parameters, seed);
}

void fail(const std::string& what) { machine.fail(what); }
void block_barrier() { machine.pause(State::AT_BLOCK); }
const uint64_t* exchange(uint64_t value) { return machine.exchange(value); }
Lds& shared_array(const void* key, const char* name, int count, int element_bytes) {
  return machine.shared_array(key, name, count, element_bytes);
}
Lds& alias_array(Lds& of, const void* key, const char* name, int count, int element_bytes) {
  return machine.alias_array(of, key, name, count, element_bytes);
}
void watch(Lds& array, int index, Access access) { machine.watch(array, index, access); }

}  // namespace fw::emulation
