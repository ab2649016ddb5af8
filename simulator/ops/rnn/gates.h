#pragma once
// The arithmetic of one step of a recurrent layer, for rows of a batch. A row of `gates` holds a layer's gates one
// after the other, each `hidden` long: input, forget, candidate, output of an LSTM; reset, update, new of a GRU.

#include <cstdint>

namespace acl_sim {

// In: what the gates get from input and state. Out: their values; h and c are the state before and after, which also
// goes to `cells` and `y`.
void lstm_rows(int64_t rows, int64_t hidden, float* gates, float* h, float* c, float* cells, float* y);
void lstm_rows(int64_t rows, int64_t hidden, double* gates, double* h, double* c, double* cells, double* y);

// `from_hidden` is without its bias. A row of `saved` gets reset, update, new, and the state's part
// of new.
void gru_rows(int64_t rows, int64_t hidden, const float* from_input, const float* from_hidden, const float* bias,
              float* h, float* saved, float* y);
void gru_rows(int64_t rows, int64_t hidden, const double* from_input, const double* from_hidden, const double* bias,
              double* h, double* saved, double* y);

// y holds the sums and gets the results, as h does.
void rnn_rows(int64_t rows, int64_t hidden, bool relu, float* h, float* y);
void rnn_rows(int64_t rows, int64_t hidden, bool relu, double* h, double* y);

// The gradients through one step. dh and dc come in as the later steps' and, of an LSTM, dc leaves as this step's; dh
// is then made of what is written to `dgates`. Of a GRU dh leaves as the part that does not go through the gates.
void lstm_grad_rows(int64_t rows, int64_t hidden, const float* gates, const float* cells, const float* c_before,
                    const float* dy, const float* dh, float* dc, float* dgates);
void lstm_grad_rows(int64_t rows, int64_t hidden, const double* gates, const double* cells, const double* c_before,
                    const double* dy, const double* dh, double* dc, double* dgates);
void gru_grad_rows(int64_t rows, int64_t hidden, const float* saved, const float* h_before, const float* dy, float* dh,
                   float* dinput, float* dhidden);
void gru_grad_rows(int64_t rows, int64_t hidden, const double* saved, const double* h_before, const double* dy,
                   double* dh, double* dinput, double* dhidden);
void rnn_grad_rows(int64_t rows, int64_t hidden, bool relu, const float* y, const float* dy, const float* dh,
                   float* dgates);
void rnn_grad_rows(int64_t rows, int64_t hidden, bool relu, const double* y, const double* dy, const double* dh,
                   double* dgates);

}  // namespace acl_sim
