// A recurrent layer over whole sequences, in one direction, as upstream has it: weights are (gates * hidden, inputs),
// and sequences of different lengths come packed, longest first. CANN has no such operator, so the types are this
// device's own. What all steps get from their inputs is one product, as are the weights' gradients; a step itself is
// one product and one pass over its gates (gates.h). fp16 and bf16 are computed in fp32.

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "ops/matmul/gemm.h"
#include "ops/nn_util.h"
#include "ops/rnn/gates.h"

namespace acl_sim {
namespace {

using at::Tensor;

// The steps in the order in which they are computed, each with its rows of the packed data.
class Steps {
 public:
  Steps(OpContext& c, const Tensor& x, size_t sizes_input) : reverse_(c.attrs().boolean("reverse", false)) {
    sizes_ = c.has_input(sizes_input) ? c.in_values(sizes_input) : std::vector<int64_t>(x.size(0), x.size(1));
    if (x.dim() != (c.has_input(sizes_input) ? 2 : 3) || sizes_.empty())
      refuse("a layer's data is (step, batch, input) or packed");
    first_.resize(sizes_.size());
    std::exclusive_scan(sizes_.begin(), sizes_.end(), first_.begin(), int64_t{0});
    if (first_.back() + sizes_.back() != x.numel() / x.size(-1)) refuse("the steps' sizes do not add up to the data");
  }
  int64_t count() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t total() const { return first_.back() + sizes_.back(); }
  int64_t most() const { return *std::max_element(sizes_.begin(), sizes_.end()); }
  int64_t rows(int64_t k) const { return sizes_[at(k)]; }
  int64_t first(int64_t k) const { return first_[at(k)]; }

  // Each step's state before it, (rows, hidden): that of the step before, or the initial one of a sequence that begins.
  Tensor before(const Tensor& states, const Tensor& initial) const {
    Tensor result = at::empty_like(states);
    for (int64_t k = 0; k < count(); ++k) {
      const int64_t known = k == 0 ? 0 : std::min(rows(k), rows(k - 1));
      if (known > 0) result.narrow(0, first(k), known).copy_(states.narrow(0, first(k - 1), known));
      if (known < rows(k)) {
        result.narrow(0, first(k) + known, rows(k) - known).copy_(initial.narrow(0, known, rows(k) - known));
      }
    }
    return result;
  }

 private:
  size_t at(int64_t k) const { return static_cast<size_t>(reverse_ ? count() - 1 - k : k); }

  bool reverse_;
  std::vector<int64_t> sizes_, first_;
};

enum class Cell { Lstm, Gru, Tanh, Relu };

Cell cell_of(OpContext& c) {
  const std::string name = c.attrs().text("cell", "");
  if (name == "lstm") return Cell::Lstm;
  if (name == "gru") return Cell::Gru;
  if (name == "tanh") return Cell::Tanh;
  if (name == "relu") return Cell::Relu;
  refuse("cell " + name);
}

int64_t gates_of(Cell cell) { return cell == Cell::Lstm ? 4 : cell == Cell::Gru ? 3 : 1; }

// An output in the dtype that is computed in, handed on at the end where the result has another.
class Result {
 public:
  Result(OpContext& c, size_t i, at::ScalarType wide, at::IntArrayRef sizes) : out_(c.out(i)) {
    computed_ = out_.scalar_type() == wide ? out_.view(sizes) : at::empty(sizes, out_.options().dtype(wide));
  }
  ~Result() = default;
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  const Tensor& operator*() const { return computed_; }
  const Tensor* operator->() const { return &computed_; }
  void give() const {
    if (out_.const_data_ptr() != computed_.const_data_ptr()) out_.copy_(computed_.view(out_.sizes()));
  }

 private:
  Tensor out_, computed_;
};

// Rows are shared out where a step has enough to do for that. The body gets the first and the end.
template <class Body>
void over_rows(int64_t begin, int64_t end, int64_t hidden, const Body& body) {
  constexpr int64_t kElements = 8192;
  at::parallel_for(begin, end, std::max<int64_t>(1, kElements / hidden), body);
}

Tensor flat(const Tensor& t) { return t.reshape({-1, t.size(-1)}); }
Tensor or_zeros(const Tensor& t, int64_t n, const Tensor& like) {
  return t.defined() ? t : at::zeros({n}, like.options());
}

struct Operands {
  Cell cell;
  Steps steps;
  Tensor x, h0, c0, w_ih, w_hh;
  int64_t inputs, hidden, gates, total;

  // x, the steps' sizes (absent where all are alike), h0, c0 (of an LSTM), w_ih, w_hh
  explicit Operands(OpContext& c) : cell(cell_of(c)), steps(c, c.in(0), 1) {
    x = flat(widen(c.in(0))), h0 = widen(c.in(2)), c0 = widen(optional_in(c, 3));
    w_ih = widen(c.in(4)), w_hh = widen(c.in(5));
    inputs = x.size(1), hidden = h0.size(1), gates = gates_of(cell) * hidden, total = steps.total();
    if (w_ih.size(0) != gates || w_ih.size(1) != inputs || w_hh.size(0) != gates || w_hh.size(1) != hidden ||
        h0.size(0) != steps.most() || (cell == Cell::Lstm) != c0.defined()) {
      refuse("weights or states do not fit the layer");
    }
  }
};

// Sequences do not depend on each other. While the weights stay in a core's cache each thread takes some of them
// through all steps, so that nobody waits for anybody at a step's end; else all threads share each step's product.
template <class Body>
void over_sequences(const Operands& o, const Body& body) {
  constexpr int64_t kCache = 1 << 20, kLeast = 4;
  const int64_t most = o.steps.most(), threads = at::get_num_threads();
  if (threads == 1 || most < kLeast * threads || static_cast<int64_t>(o.w_hh.nbytes()) > kCache) {
    body(0, most);
  } else {
    at::parallel_for(0, most, (most + threads - 1) / threads, body);
  }
}

template <class T>
void run_steps(const Operands& o, const Tensor& gates, const Tensor& bias, const Tensor& h, const Tensor& c,
               const Tensor& saved, const Tensor& cells, const Tensor& y) {
  const int64_t n = o.hidden, width = o.gates;
  const bool gru = o.cell == Cell::Gru, lstm = o.cell == Cell::Lstm;
  const Tensor from_hidden = gru ? at::empty({o.steps.most(), width}, h.options()) : Tensor();
  const T* const w = o.w_hh.const_data_ptr<T>();
  T* const state = h.mutable_data_ptr<T>();
  T* const out = y.mutable_data_ptr<T>();
  T* const sums = gates.mutable_data_ptr<T>();
  T* const parts = gru ? from_hidden.mutable_data_ptr<T>() : nullptr;
  T* const kept = gru ? saved.mutable_data_ptr<T>() : nullptr;
  T* const cell = lstm ? c.mutable_data_ptr<T>() : nullptr;
  T* const all_cells = lstm ? cells.mutable_data_ptr<T>() : nullptr;
  const T* const added = gru ? bias.const_data_ptr<T>() : nullptr;
  over_sequences(o, [&](int64_t from, int64_t to) {
    for (int64_t k = 0; k < o.steps.count(); ++k) {
      const int64_t first = o.steps.first(k), rows = std::min(to, o.steps.rows(k)) - from;
      if (rows <= 0) continue;
      // A GRU's parts of the state are summed apart from those of the input.
      T* const product = gru ? parts + from * width : sums + (first + from) * width;
      gemm_nt(rows, width, n, state + from * n, n, w, n, T(gru ? 0 : 1), product, width);
      over_rows(from, from + rows, n, [&](int64_t a, int64_t b) {
        const int64_t at = first + a;
        if (gru) {
          gru_rows(b - a, n, sums + at * width, parts + a * width, added, state + a * n, kept + at * 4 * n,
                   out + at * n);
        } else if (lstm) {
          lstm_rows(b - a, n, sums + at * width, state + a * n, cell + a * n, all_cells + at * n, out + at * n);
        } else {
          rnn_rows(b - a, n, o.cell == Cell::Relu, state + a * n, out + at * n);
        }
      });
    }
  });
}

// as Operands, b_ih, b_hh -> y, the last h, the last c (of an LSTM), gates and cells for the gradient
void recurrent_layer(OpContext& c) {
  const Operands o(c);
  const auto wide = o.x.scalar_type();
  const bool training = c.attrs().boolean("training", false), lstm = o.cell == Cell::Lstm, gru = o.cell == Cell::Gru;
  const Tensor b_ih = widen(optional_in(c, 6)), b_hh = widen(optional_in(c, 7));
  const Result y(c, 0, wide, {o.total, o.hidden}), h(c, 1, wide, o.h0.sizes());
  h->copy_(o.h0);
  std::optional<Result> last_c;
  if (lstm) last_c.emplace(c, 2, wide, o.c0.sizes()), (*last_c)->copy_(o.c0);
  const auto kept = [&](bool needed, size_t i, int64_t width) {
    if (!needed) return Tensor();
    return training ? c.out(i).view({o.total, width}) : at::empty({o.total, width}, o.x.options());
  };
  const Tensor saved = kept(lstm || gru, 3, 4 * o.hidden), cells = kept(lstm, 4, o.hidden);
  // The sums become the gates' values in place; a plain layer's are its results.
  const Tensor sums = lstm ? saved : gru ? at::empty({o.total, o.gates}, o.x.options()) : *y;
  const Tensor bias = !b_ih.defined() ? b_hh : gru || !b_hh.defined() ? b_ih : b_ih + b_hh;
  if (bias.defined() && b_ih.defined()) {
    at::addmm_out(const_cast<Tensor&>(sums), bias, o.x, o.w_ih.t());
  } else {
    at::mm_out(const_cast<Tensor&>(sums), o.x, o.w_ih.t());
  }
  const Tensor own = gru ? or_zeros(b_hh, o.gates, o.x) : Tensor();
  const Tensor cell = lstm ? **last_c : Tensor();
  if (wide == at::kDouble) {
    run_steps<double>(o, sums, own, *h, cell, saved, cells, *y);
  } else {
    run_steps<float>(o, sums, own, *h, cell, saved, cells, *y);
  }
  y.give();
  h.give();
  if (lstm) last_c->give();
}
SIM_OP(RecurrentLayer)
    .inputs(6, 8)
    .outputs(2, 5)
    .dtypes(kFloatTypes | kIntTypes)
    .attrs({"cell:str", "reverse:bool", "training:bool"})
    .require({"cell"})
    .on_cube()
    .run(recurrent_layer);

template <class T>
void run_back(const Operands& o, const Tensor& y, const Tensor& saved, const Tensor& cells, const Tensor& before,
              const Tensor& c_before, const Tensor& dy, const Tensor& dh, const Tensor& dc, const Tensor& dinput,
              const Tensor& dhidden) {
  const int64_t n = o.hidden, width = o.gates;
  const bool gru = o.cell == Cell::Gru, lstm = o.cell == Cell::Lstm;
  const T* const w = o.w_hh.const_data_ptr<T>();
  const T* const outer = dy.const_data_ptr<T>();
  const T* const kept = gru || lstm ? saved.const_data_ptr<T>() : nullptr;
  const T* const states = gru ? before.const_data_ptr<T>() : nullptr;
  T* const by_cell = lstm ? dc.mutable_data_ptr<T>() : nullptr;
  T* const by_input = dinput.mutable_data_ptr<T>();
  T* const by_state = dh.mutable_data_ptr<T>();
  T* const by_gates = dhidden.mutable_data_ptr<T>();
  over_sequences(o, [&](int64_t from, int64_t to) {
    for (int64_t k = o.steps.count() - 1; k >= 0; --k) {
      const int64_t first = o.steps.first(k), rows = std::min(to, o.steps.rows(k)) - from;
      if (rows <= 0) continue;
      over_rows(from, from + rows, n, [&](int64_t a, int64_t b) {
        const int64_t at = first + a;
        if (lstm) {
          lstm_grad_rows(b - a, n, kept + at * width, cells.const_data_ptr<T>() + at * n,
                         c_before.const_data_ptr<T>() + at * n, outer + at * n, by_state + a * n, by_cell + a * n,
                         by_gates + at * width);
        } else if (gru) {
          gru_grad_rows(b - a, n, kept + at * 4 * n, states + at * n, outer + at * n, by_state + a * n,
                        by_input + at * width, by_gates + at * width);
        } else {
          rnn_grad_rows(b - a, n, o.cell == Cell::Relu, y.const_data_ptr<T>() + at * n, outer + at * n,
                        by_state + a * n, by_gates + at * width);
        }
      });
      // A GRU's state has a way around the gates, too.
      gemm_nn(rows, n, width, by_gates + (first + from) * width, width, w, n, T(gru ? 1 : 0), by_state + from * n, n);
    }
  });
}

// as Operands, y, gates and cells as they were kept, dy, dh, dc (each absent where there is none)
// -> dx, dh0, dc0 (of an LSTM), dw_ih, dw_hh, db_ih, db_hh
void recurrent_layer_grad(OpContext& c) {
  const Operands o(c);
  const auto wide = o.x.scalar_type();
  const bool lstm = o.cell == Cell::Lstm, gru = o.cell == Cell::Gru;
  const Tensor y = flat(widen(c.in(6))), saved = optional_in(c, 7), cells = optional_in(c, 8);
  Tensor dy = widen(optional_in(c, 9));
  dy = dy.defined() ? flat(dy) : at::zeros_like(y);
  const auto start = [&](const Result& gradient, size_t i) {
    const Tensor given = optional_in(c, i);
    given.defined() ? gradient->copy_(given) : gradient->zero_();
  };
  const Result dh(c, 1, wide, o.h0.sizes());
  start(dh, 10);
  std::optional<Result> dc;
  if (lstm) dc.emplace(c, 2, wide, o.c0.sizes()), start(*dc, 11);
  const Tensor before = o.steps.before(y, o.h0), c_before = lstm ? o.steps.before(flat(cells), o.c0) : Tensor();
  const Tensor dhidden = at::empty({o.total, o.gates}, o.x.options());
  const Tensor dinput = gru ? at::empty_like(dhidden) : dhidden, by_cell = lstm ? **dc : Tensor();
  if (wide == at::kDouble) {
    run_back<double>(o, y, saved, cells, before, c_before, dy, *dh, by_cell, dinput, dhidden);
  } else {
    run_back<float>(o, y, saved, cells, before, c_before, dy, *dh, by_cell, dinput, dhidden);
  }
  dh.give();
  if (lstm) dc->give();
  const auto product = [&](size_t i, const Tensor& a, const Tensor& b) {
    const Result result(c, i, wide, {a.size(0), b.size(1)});
    at::mm_out(const_cast<Tensor&>(*result), a, b);
    result.give();
  };
  if (c.attrs().boolean("input_gradient", true)) product(0, dinput, o.w_ih);
  product(3, dinput.t(), o.x);
  product(4, dhidden.t(), before);
  if (c.attrs().boolean("biases", false)) {
    const Tensor by_input = dinput.sum(0);
    c.out(5).copy_(by_input);
    c.out(6).copy_(gru ? dhidden.sum(0) : by_input);
  }
}
SIM_OP(RecurrentLayerGrad)
    .inputs(12)
    .outputs(7)
    .dtypes(kFloatTypes | kIntTypes)
    .attrs({"cell:str", "reverse:bool", "biases:bool", "input_gradient:bool"})
    .require({"cell"})
    .on_cube()
    .run(recurrent_layer_grad);

}  // namespace
}  // namespace acl_sim
