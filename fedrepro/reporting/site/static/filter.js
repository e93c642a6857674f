// Show only the rows of a table that hold the text in its filter field.
"use strict";
for (const field of document.querySelectorAll("input.fr-filter")) {
  const rows = [...document.querySelectorAll(`#${field.dataset.table} tbody tr`)];
  const status = field.closest("p").querySelector("[role=status]");
  const apply = () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    status.textContent = `${shown} of ${rows.length} rows`;
  };
  field.addEventListener("input", apply);
  apply();
}
