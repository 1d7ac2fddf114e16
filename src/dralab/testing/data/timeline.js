"use strict";
const boxes = document.querySelectorAll("input[data-what]");
function filter() {
  const hidden = new Set();
  boxes.forEach((box) => { if (!box.checked) hidden.add(box.dataset.what); });
  document.querySelectorAll("tr[data-what]").forEach((row) => {
    row.classList.toggle("hidden", hidden.has(row.dataset.what));
  });
}
boxes.forEach((box) => box.addEventListener("change", filter));
filter();
