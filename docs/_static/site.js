// What scrolls can be reached by keyboard, and every part of the page has a name.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("pre, .math, .table-wrapper, article dt.sig")) box.tabIndex = 0;
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
});
