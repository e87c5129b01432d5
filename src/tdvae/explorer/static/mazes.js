// A maze with the probability of the ghost in each cell.

import { prepareCanvas, themeColour } from "./palette.js";

export function drawMaze(canvas, maze, heat) {
  const { ctx, width, height } = prepareCanvas(canvas);
  const rows = maze.walls.length, columns = maze.walls[0].length;
  const size = Math.min(width / columns, height / rows);
  const most = Math.max(...heat.flat(), 1e-9);
  const cell = (row, column, inset = 0) => [column * size + inset, row * size + inset, size - 2 * inset, size - 2 * inset];
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
    ctx.fillStyle = maze.walls[row][column] ? themeColour("line") : themeColour("card");
    ctx.fillRect(...cell(row, column));
    const share = Math.sqrt(heat[row][column] / most);
    if (!maze.walls[row][column] && share > 0.02) { ctx.fillStyle = `rgba(${themeColour("heat")}, ${share})`; ctx.fillRect(...cell(row, column, 1)); }
    if (maze.in_view[row][column]) { ctx.strokeStyle = themeColour("soft"); ctx.lineWidth = 0.6; ctx.strokeRect(...cell(row, column, 0.5)); }
  }
  const middle = ([row, column]) => [(column + 0.5) * size, (row + 0.5) * size];
  ctx.fillStyle = "#e0a800";
  ctx.beginPath();
  ctx.moveTo(...middle(maze.pacman));
  ctx.arc(...middle(maze.pacman), 0.42 * size, 0.2 * Math.PI, 1.8 * Math.PI);
  ctx.fill();
  if (!maze.ghost) return;
  const [x, y] = middle(maze.ghost);
  ctx.strokeStyle = themeColour("warn");
  ctx.lineWidth = 2;
  ctx.beginPath();
  ctx.arc(x, y, 0.4 * size, 0, 2 * Math.PI);
  ctx.moveTo(x - 0.25 * size, y - 0.25 * size);
  ctx.lineTo(x + 0.25 * size, y + 0.25 * size);
  ctx.moveTo(x + 0.25 * size, y - 0.25 * size);
  ctx.lineTo(x - 0.25 * size, y + 0.25 * size);
  ctx.stroke();
}
