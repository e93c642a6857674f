// A simulated accelerator for the tests: a CUDA device that is none, for a CPU build of torch.
//
// The device is "cuda:0" and its memory is the host's. It goes through torch's own dispatcher, allocator and autograd
// threads, refuses what CUDA refuses, and tells a listener the name of every operation. It computes with the CPU's
// kernels, so kernels, their speed and their rounding, and streams are not tested by it.
//
// `simulated.py` builds this file (g++, no CUDA headers) and has it loaded before torch is imported, since torch asks
// once whether there is CUDA. Its parts: hooks, guard, allocator, eight operations of aten by hand, one boxed fallback
// for all others, the refusals in it, device asserts, a listener, and noise. Written for torch 2.13.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/unfold_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <atomic>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace at {
using c10::Device; using c10::DeviceType;
struct CUDAHooks final : CUDAHooksInterface {  // the registry looks for this name
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  std::string showConfig() const override { return "  - simulated device\n"; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  Device getDeviceFromPtr(void*) const override { return Device(DeviceType::CUDA, 0); }
  void deviceSynchronize(c10::DeviceIndex) const override {}
};
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, CUDAHooks)
}  // namespace at

namespace {
using c10::Device; using c10::DeviceType; using c10::Stream; using at::Tensor;
const Device GPU(DeviceType::CUDA, 0);

// -- device ----------------------------------------------------------------------------------------------------------
struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return GPU; }
  Device getDevice() const override { return GPU; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return Stream(Stream::DEFAULT, GPU); }
  Stream getNewStream(Device, int) const override { return Stream(Stream::DEFAULT, GPU); }
  Stream exchangeStream(Stream) const override { return Stream(Stream::DEFAULT, GPU); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

// -- memory ----------------------------------------------------------------------------------------------------------
std::atomic<int64_t> held{0}, peak{0}, limit{INT64_MAX};
void check_room(int64_t n) {
  if (held + n > limit) TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", n >> 20, " MiB. (simulated)");
}
void count_bytes(int64_t n) {
  check_room(n);
  auto now = held += n; auto p = peak.load(); while (now > p && !peak.compare_exchange_weak(p, now)) {} }

struct Block { c10::DataPtr memory; c10::Storage owner; int64_t bytes; };
void release(void* b) { auto* block = static_cast<Block*>(b); held -= block->bytes; delete block; }
c10::DataPtr on_gpu(Block* made, void* at) {
  std::unique_ptr<Block> block(made);
  count_bytes(block->bytes);
  return {at, block.release(), &release, GPU};
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    check_room(n);
    auto* block = new Block{c10::GetCPUAllocator()->allocate(n), {}, int64_t(n)};
    return on_gpu(block, block->memory.get());
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
} memory;

// -- between the two -------------------------------------------------------------------------------------------------
Tensor as_cpu(const Tensor& t) {  // the same memory, called the CPU's
  auto owner = t.storage();
  auto* keep = new c10::Storage(owner);
  c10::DataPtr data(const_cast<void*>(owner.data()), keep, [](void* k) { delete static_cast<c10::Storage*>(k); }, Device(DeviceType::CPU));
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), owner.nbytes(), std::move(data), c10::GetCPUAllocator(), true));
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  made.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}
Tensor as_gpu(const Tensor& t) {
  auto owner = t.storage();
  auto* block = new Block{{}, owner, int64_t(owner.nbytes())};
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), owner.nbytes(), on_gpu(block, const_cast<void*>(owner.data())), &memory, true));
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), t.dtype());
  made.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  return made;
}

// -- device asserts ---------------------------------------------------------------------------------------------------
// An index out of range is found by a kernel, after which every call of the process fails.
std::atomic<bool> asserted{false}, forked{false};
const std::set<std::string> INDEXED = {"aten::index", "aten::index_select", "aten::gather", "aten::nll_loss_forward", "aten::_index_put_impl_",
  "aten::index_add", "aten::index_copy", "aten::scatter", "aten::_embedding_bag", "aten::_embedding_bag_forward_only"};
void check_context() {
  // A process that was forked from one that has asked the driver for its devices.
  if (forked) throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 3, "CUDA error: initialization error (simulated)");
  if (asserted) throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 710, "CUDA error: device-side assert triggered (simulated)");
}

// -- what was called -------------------------------------------------------------------------------------------------
void (*hook)(const char*) = nullptr;
void note(const std::string& name) { if (hook) hook(name.c_str()); }

// -- kernels ---------------------------------------------------------------------------------------------------------
Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
             std::optional<Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!layout || *layout == at::kStrided, "simulated device: strided tensors only");
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype), format);
}
Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype));
}
const Tensor& resize_(const Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = self.unsafeGetTensorImpl();
  int64_t numel = 1; for (auto n : size) numel *= n;
  size_t need = (numel + self.storage_offset()) * self.itemsize();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (need > storage->nbytes()) {
    auto fresh = memory.allocate(need);
    if (storage->nbytes()) memcpy(fresh.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(fresh)); storage->set_nbytes(need);
  }
  impl->set_sizes_contiguous(size);
  return self;
}
Tensor& copy_(Tensor& self, const Tensor& src, bool) {
  check_context();
  bool to = self.is_cuda(), from = src.is_cuda();
  note(to && from ? "copy_" : to ? "copy_ host to device" : "copy_ device to host");
  auto a = to ? as_cpu(self) : self; auto b = from ? as_cpu(src) : src;
  at::NoGradGuard none; a.copy_(b);
  return self;
}

[[noreturn]] void two_devices(const std::string& argument, const std::string& op, const Tensor& t) {
  std::ostringstream shape; shape << t.sizes();
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
              "(when checking argument for argument ", argument, " of shape ", shape.str(), " in method wrapper_CUDA_", op, ")");
}
const std::set<std::string> TAKES_INDEX = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index", "aten::_unsafe_index_put"};
const std::set<std::string> TAKES_SCALAR = {"aten::where", "aten::masked_fill", "aten::masked_fill_", "aten::index_fill", "aten::index_fill_",
  "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::fill_", "aten::fill", "aten::lerp", "aten::clamp", "aten::clamp_", "aten::clamp_min", "aten::clamp_max"};

const std::set<std::string> PRODUCTS = {"aten::mm", "aten::bmm", "aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::addmv", "aten::dot", "aten::vdot", "aten::addbmm"};
const std::set<std::string> SUMS = {"aten::_embedding_bag", "aten::_embedding_bag_forward_only", "aten::sum", "aten::mean", "aten::_log_softmax", "aten::exp", "aten::native_layer_norm"};
double noise = 0;
void refuse(const std::string& name, const c10::FunctionSchema& schema, const std::vector<std::pair<Tensor, Tensor>>& seen, torch::jit::Stack* stack, size_t begin) {
  if (PRODUCTS.count(name))
    for (auto& [gpu, cpu] : seen)
      TORCH_CHECK(!at::isIntegralType(gpu.scalar_type(), true), "\"", name.substr(6), "_cuda\" not implemented for '", gpu.scalar_type(), "'");
  if (name == "aten::_fused_adam_" || name == "aten::_fused_adamw_" || name == "aten::_fused_sgd_") {  // at::native::check_fast_path_restrictions
    auto first = (*stack)[begin].toTensorVector();
    for (size_t list = 1; list < 4 && (*stack)[begin + list].isTensorList(); ++list) {
      auto other = (*stack)[begin + list].toTensorVector();
      for (size_t i = 0; i < other.size(); ++i)
        TORCH_CHECK(other[i].sizes() == first[i].sizes() && other[i].strides() == first[i].strides() && other[i].is_non_overlapping_and_dense()
                    && other[i].scalar_type() == first[i].scalar_type(), "params, grads, exp_avgs, and exp_avg_sqs must have same dtype, device, and layout");
    }
  }
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  check_context();
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  const auto count = schema.arguments().size();
  const auto begin = stack->size() - count;
  note(schema.overload_name().empty() ? name : name + "." + schema.overload_name());
  std::vector<std::pair<Tensor, Tensor>> seen;  // of the GPU, its alias
  auto convert = [&](const Tensor& t, const c10::Argument& argument) -> Tensor {
    if (!t.defined()) return t;
    if (t.is_cuda()) {
      for (auto& [gpu, cpu] : seen) if (gpu.is_same(t)) return cpu;
      seen.emplace_back(t, as_cpu(t));
      return seen.back().second;
    }
    if (TAKES_INDEX.count(name) && argument.name() == "indices") { note("copy_ host to device"); return t; }
    bool scalar = t.dim() == 0 && (t.unsafeGetTensorImpl()->is_wrapped_number() || op.hasTag(at::Tag::pointwise) || TAKES_SCALAR.count(name));
    if (!scalar) two_devices(argument.name(), name, t);
    return t;
  };
  for (size_t i = 0; i < count; ++i) {
    const auto& argument = schema.arguments()[i];
    auto& value = (*stack)[begin + i];
    if (value.isTensor()) value = convert(value.toTensor(), argument);
    else if (value.isTensorList()) {
      c10::List<Tensor> made; for (const Tensor& t : value.toTensorVector()) made.push_back(convert(t, argument));
      value = made;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> made;
      for (const auto& t : value.toOptionalTensorVector()) made.push_back(t ? std::optional<Tensor>(convert(*t, argument)) : std::nullopt);
      value = made;
    } else if (value.isGenerator()) {
      TORCH_CHECK(value.toGenerator().device().is_cuda(), "Expected a 'cuda' device type for generator but found 'cpu'");
    } else if (value.isDevice()) value = Device(DeviceType::CPU);
  }
  refuse(name, schema, seen, stack, begin);
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  } catch (const c10::IndexError& error) {
    if (!INDEXED.count(name)) throw;
    asserted = true;
    check_context();
  }
  if (noise > 0 && (PRODUCTS.count(name) || SUMS.count(name)))
    for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
      if ((*stack)[i].isTensor() && (*stack)[i].toTensor().defined() && at::isFloatingType((*stack)[i].toTensor().scalar_type())) {
        auto made = (*stack)[i].toTensor();
        made.mul_(at::rand(made.sizes(), made.options()).sub_(0.5).mul_(2 * noise).add_(1));
      }
  for (auto& [gpu, cpu] : seen)  // an `out` that was made larger
    if (gpu.sizes() != cpu.sizes()) {
      resize_(gpu, cpu.sizes(), std::nullopt);
      as_cpu(gpu).copy_(cpu);
    }
  auto back = [&](const Tensor& t) -> Tensor {
    if (!t.defined()) return t;
    for (auto& [gpu, cpu] : seen) if (cpu.is_same(t)) return gpu;
    for (auto& [gpu, cpu] : seen)
      TORCH_CHECK(!t.storage().is_alias_of(cpu.storage()), "simulated device: ", name, " returned a view");
    return t.is_cuda() ? t : as_gpu(t);
  };
  const auto results = schema.returns().size();
  for (size_t i = stack->size() - results; i < stack->size(); ++i) {
    auto& value = (*stack)[i];
    if (value.isTensor()) value = back(value.toTensor());
    else if (value.isTensorList()) { c10::List<Tensor> made; for (const Tensor& t : value.toTensorVector()) made.push_back(back(t)); value = made; }
  }
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
}
struct Settle { Settle() { c10::SetAllocator(DeviceType::CUDA, &memory); } } settle;
}  // namespace

extern "C" {
void device_hook(void (*f)(const char*)) { hook = f; }
int64_t device_held() { return held; }
int64_t device_peak() { return peak; }
void device_limit(int64_t n) { limit = n; }
void device_assert(int now) { asserted = now != 0; }
void device_forked() { forked = true; }
void device_noise(double by) { noise = by; }
void device_reset_peak() { peak = held.load(); }
}
