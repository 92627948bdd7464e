"use strict";
(() => {
  const svg = document.documentElement;
  const unit = svg.dataset.unit;
  const whole = Number(svg.dataset.whole);
  const byId = (id) => document.getElementById(id);
  const frames = [...document.querySelectorAll(".frame")].map((group) => {
    const title = group.querySelector("title").textContent;
    return {
      group,
      title,
      name: title.slice(0, title.lastIndexOf(" (")),
      depth: Number(group.dataset.d),
      left: Number(group.dataset.l),
      value: Number(group.dataset.v),
      rect: group.querySelector("rect"),
      text: group.querySelector("text"),
    };
  });
  let zoomed = frames.find((frame) => frame.depth === 0);
  let pattern = null;

  function label(frame, pixels) {
    const room = Math.floor((pixels - 6) / 7);
    const name = [...frame.name];
    if (room < 3) return "";
    return name.length <= room ? frame.name : name.slice(0, room - 2).join("") + "..";
  }

  function draw() {
    const pixels = svg.getBoundingClientRect().width;
    const { left, value, depth } = zoomed;
    for (const frame of frames) {
      const end = frame.left + frame.value;
      const above = frame.depth < depth;
      const inside = above
        ? frame.left <= left && end >= left + value
        : frame.left >= left && end <= left + value;
      frame.group.classList.toggle("hidden", !inside);
      frame.group.classList.toggle("faded", inside && above);
      if (!inside) continue;
      const from = above ? 0 : (100 * (frame.left - left)) / value;
      const width = above ? 100 : (100 * frame.value) / value;
      frame.rect.setAttribute("x", from + "%");
      frame.rect.setAttribute("width", width + "%");
      frame.text.setAttribute("x", from + "%");
      frame.text.textContent = label(frame, (pixels * width) / 100);
    }
    byId("reset").classList.toggle("hidden", depth === 0);
  }

  function zoom(frame) {
    zoomed = frame;
    draw();
  }

  // The matched value counts each sample once, though a matching function may call another one.
  function search(text) {
    pattern = null;
    try {
      if (text) pattern = new RegExp(text);
    } catch {
      pattern = new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    }
    let matched = 0;
    let until = -1;
    const found = frames.filter((frame) => pattern !== null && pattern.test(frame.name));
    for (const frame of frames) frame.group.classList.toggle("found", found.includes(frame));
    found.sort((one, other) => one.left - other.left || one.depth - other.depth);
    for (const frame of found) {
      if (frame.left < until) continue;
      matched += frame.value;
      until = frame.left + frame.value;
    }
    const share = whole ? ((100 * matched) / whole).toFixed(2) : "0";
    byId("matched").textContent = pattern === null ? " " : `matched: ${matched} ${unit}, ${share} %`;
  }

  function ask() {
    if (pattern !== null) return search("");
    search(prompt("Search for a function (a regular expression)") ?? "");
  }

  for (const frame of frames) {
    frame.group.addEventListener("click", () => zoom(frame));
    frame.group.addEventListener("mouseenter", () => {
      byId("details").textContent = frame.title;
    });
    frame.group.addEventListener("mouseleave", () => {
      byId("details").textContent = " ";
    });
  }
  byId("search").classList.remove("hidden");
  byId("search").addEventListener("click", ask);
  byId("reset").addEventListener("click", () => zoom(frames.find((frame) => frame.depth === 0)));
  window.addEventListener("resize", draw);
  window.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "f") {
      event.preventDefault();
      ask();
    }
  });
  draw();
  // The outermost frames are at the bottom, which a tall picture does not show at first.
  window.scrollTo(0, document.documentElement.scrollHeight);
})();
