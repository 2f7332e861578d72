#include "cgroup.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace flatwake {

namespace {

// The first word of a file; empty if there is none.
std::string word_of(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// This process's folders below `root`, from its own group up to the root: a limit of any binds.
std::vector<std::string> group_folders(const std::string& root, const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  std::string line, path = "/";
  while (std::getline(file, line)) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool ours = controller.empty()
                          ? names == ",,"
                          : names.find("," + controller + ",") != std::string::npos;
    if (ours) path = line.substr(second + 1);
  }
  std::vector<std::string> folders;
  while (path.size() > 1) {
    folders.push_back(root + path);
    path.resize(path.find_last_of('/'));
  }
  folders.push_back(root);
  return folders;
}

int64_t number(const std::string& word, int64_t otherwise) {
  if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos) return otherwise;
  return std::stoll(word);
}

int64_t meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(name + ":", 0) != 0) continue;
    std::istringstream words(line.substr(name.size() + 1));
    int64_t kilobytes = 0;
    words >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

void bind(HostMemory& memory, const std::string& limit_file, const std::string& use_file) {
  constexpr int64_t UNLIMITED = int64_t(1) << 60;
  const int64_t limit = number(word_of(limit_file), UNLIMITED);
  if (limit >= UNLIMITED) return;
  const int64_t left = limit - number(word_of(use_file), 0);
  if (limit < memory.total) memory.total = limit;
  if (left < memory.free) memory.free = left > 0 ? left : 0;
}

}  // namespace

double cgroup_processors() {
  double least = 0;
  const auto consider = [&least](double quota, double period) {
    if (quota <= 0 || period <= 0) return;
    const double share = quota / period;
    if (least == 0 || share < least) least = share;
  };
  for (const auto& folder : group_folders("/sys/fs/cgroup", "")) {
    std::ifstream file(folder + "/cpu.max");
    std::string quota;
    double period = 0;
    if (file >> quota >> period && quota != "max") consider(double(number(quota, 0)), period);
  }
  for (const auto& folder : group_folders("/sys/fs/cgroup/cpu", "cpu")) {
    consider(double(number(word_of(folder + "/cpu.cfs_quota_us"), 0)),
             double(number(word_of(folder + "/cpu.cfs_period_us"), 0)));
  }
  return least;
}

HostMemory host_memory() {
  HostMemory memory{meminfo("MemTotal"), meminfo("MemAvailable")};
  for (const auto& folder : group_folders("/sys/fs/cgroup", ""))
    bind(memory, folder + "/memory.max", folder + "/memory.current");
  for (const auto& folder : group_folders("/sys/fs/cgroup/memory", "memory"))
    bind(memory, folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes");
  return memory;
}

}  // namespace flatwake
